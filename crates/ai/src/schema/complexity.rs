//! The work that a JSON Schema can cause, measured before it is compiled. References can make a
//! small schema expand to any size, and the validator follows them on the stack: a chain of some
//! hundred would end the process.

use std::collections::HashMap;

use serde_json::Value;

use super::{SchemaError, resolve_pointer};

/// Most nodes of a schema with its references replaced by what they refer to.
const MAX_NODES: u64 = 1_000_000;

/// Deepest nesting, references included.
const MAX_DEPTH: usize = 128;

/// Most references to anchors and dynamic ones, which are not followed here.
const MAX_ANCHOR_REFERENCES: usize = 16;

/// How much work a schema can cause.
#[derive(Debug, Clone, Copy)]
pub(super) struct Complexity {
    /// Nodes, with references replaced by what they refer to.
    pub(super) nodes: u64,
    /// A reference may lead back to itself: then the answer decides how often it is followed.
    pub(super) is_recursive: bool,
}

/// Measures a schema. Rejects one that is too large.
pub(super) fn measure(schema: &Value) -> Result<Complexity, SchemaError> {
    let is_draft_4 = schema["$schema"].as_str().is_some_and(|draft| draft.contains("draft-04"));
    let id = if is_draft_4 { "id" } else { "$id" };
    let mut walk =
        Walk { root: schema, id, targets: HashMap::new(), visits: 0, anchors: 0, is_recursive: false };
    let (nodes, _) = walk.measure(schema, 0)?;
    Ok(Complexity { nodes, is_recursive: walk.is_recursive })
}

struct Walk<'a> {
    root: &'a Value,
    /// The keyword that gives a subschema an address of its own.
    id: &'static str,
    /// Nodes and depth by reference; `None` while they are measured.
    targets: HashMap<&'a str, Option<(u64, usize)>>,
    visits: u64,
    anchors: usize,
    is_recursive: bool,
}

impl<'a> Walk<'a> {
    /// The nodes and the depth of a subschema at `depth`.
    fn measure(&mut self, schema: &'a Value, depth: usize) -> Result<(u64, usize), SchemaError> {
        self.visits += 1;
        check_limits(self.visits, depth)?;
        // References below it would be relative to it.
        if depth > 0 && schema[self.id].is_string() {
            return Err(SchemaError(format!("a subschema with `{}` is not supported", self.id)));
        }
        let children: Vec<&Value> = match schema {
            Value::Object(members) => members.values().collect(),
            Value::Array(items) => items.iter().collect(),
            _ => Vec::new(),
        };
        let (mut nodes, mut deepest) = (1, 0);
        let mut add = |(more, below): (u64, usize)| {
            nodes += more;
            deepest = deepest.max(below);
        };
        for child in children {
            add(self.measure(child, depth + 1)?);
        }
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            if let Some(reference) = schema[keyword].as_str() {
                add(self.target(reference, depth + 1)?);
            }
        }
        check_limits(nodes, depth + deepest)?;
        Ok((nodes, deepest + 1))
    }

    /// The nodes and the depth of what a reference at `depth` refers to.
    fn target(&mut self, reference: &'a str, depth: usize) -> Result<(u64, usize), SchemaError> {
        if let Some(known) = self.targets.get(reference) {
            self.is_recursive |= known.is_none();
            return Ok(known.unwrap_or((1, 1)));
        }
        let Some(target) = resolve_pointer(self.root, reference) else {
            (self.anchors, self.is_recursive) = (self.anchors + 1, true);
            return match self.anchors {
                0..=MAX_ANCHOR_REFERENCES => Ok((1, 1)),
                _ => Err(too_large()),
            };
        };
        self.targets.insert(reference, None);
        let measured = self.measure(target, depth)?;
        self.targets.insert(reference, Some(measured));
        Ok(measured)
    }
}

/// Rejects a number of nodes or a depth above the limit. Every sum of nodes is checked, so that none
/// overflows.
fn check_limits(nodes: u64, depth: usize) -> Result<(), SchemaError> {
    if nodes <= MAX_NODES && depth <= MAX_DEPTH { Ok(()) } else { Err(too_large()) }
}

fn too_large() -> SchemaError {
    SchemaError(format!(
        "its references expand to more than {MAX_NODES} nodes or {MAX_DEPTH} levels, or it has more than \
         {MAX_ANCHOR_REFERENCES} references to anchors"
    ))
}
