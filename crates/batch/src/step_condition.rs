//! `when` of a step: an expression over the answers of earlier steps.

use std::collections::BTreeMap;

use minijinja::value::Serde;
use minijinja::{Environment, Value};

use crate::template::{self, TemplateError};
use crate::verdict_rules::STEPS;

const NAME: &str = "when";

/// A compiled condition.
#[derive(Debug)]
pub(crate) struct StepCondition {
    environment: Environment<'static>,
}

impl StepCondition {
    /// Compiles an expression.
    pub(crate) fn compile(when: &str) -> Result<Self, TemplateError> {
        template::guard_expression(when)?;
        let mut environment = template::environment();
        let compiled = environment.compile_expression_owned(when.to_owned());
        compiled.map_err(|error| TemplateError::from_engine(&error))?;
        // As with rules: a template can be stored beside its environment.
        let test = format!("{{% if {when} %}}1{{% endif %}}");
        let added = environment.add_template_owned(NAME, test);
        added.map_err(|error| TemplateError::from_engine(&error))?;
        Ok(Self { environment })
    }

    /// Whether the step runs. A condition on a value that is not there is not met.
    pub(crate) fn is_met(&self, answers: &BTreeMap<String, serde_json::Value>) -> Result<bool, String> {
        let values = answers.iter().map(|(name, answer)| (name.as_str(), Value::from(Serde(answer))));
        let steps = Value::from(Serde(answers));
        let names = Value::from_pairs(values.chain([(STEPS, steps)]));
        match self.environment.get_template(NAME).and_then(|test| test.render(names)) {
            Ok(output) => Ok(!output.is_empty()),
            Err(error) if template::is_undefined(&error) => Ok(false),
            Err(error) => Err(format!("`when`: {}", TemplateError::from_engine(&error))),
        }
    }

    /// The names that it uses.
    pub(crate) fn names(&self) -> Vec<String> {
        template::names(&self.environment, NAME)
    }
}
