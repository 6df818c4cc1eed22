//! Parses `--resource NAME=N`: what a unit needs beside slots, and what a worker offers.

use std::collections::BTreeMap;

use crate::error::usage;

/// An amount of a named resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceArg {
    name: String,
    amount: u32,
}

impl std::str::FromStr for ResourceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |why: &str| format!("`{text}` is not a resource as gpu=2: {why}");
        let (name, amount) = text.split_once('=').ok_or_else(|| bad("there is no `=`"))?;
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
            return Err(bad("a name has 1 to 64 letters, digits, `.`, `_` or `-`"));
        }
        let amount = amount.parse().ok().filter(|amount| *amount > 0);
        let amount = amount.ok_or_else(|| bad("the amount is a whole number from 1"))?;
        Ok(Self { name: name.to_owned(), amount })
    }
}

/// All resources by name; a duplicate name is an error.
pub fn collect_resources(typed: &[ResourceArg]) -> anyhow::Result<BTreeMap<String, u32>> {
    let mut all = BTreeMap::new();
    for ResourceArg { name, amount } in typed {
        if all.insert(name.clone(), *amount).is_some() {
            return Err(usage(format!("resource `{name}` is given twice")));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_has_a_name_and_an_amount() {
        let gpu: ResourceArg = "gpu=2".parse().unwrap();
        let twice = [gpu.clone(), gpu];
        assert_eq!(collect_resources(&twice[..1]).unwrap(), BTreeMap::from([("gpu".to_owned(), 2)]));
        let error = collect_resources(&twice).unwrap_err().to_string();
        assert!(error.contains("`gpu` is given twice"), "{error}");
    }

    #[test]
    fn what_is_no_resource_is_refused_with_the_reason() {
        for (text, why) in [
            ("gpu", "no `=`"),
            ("=2", "a name has"),
            ("a b=2", "a name has"),
            ("gpu=", "whole number"),
            ("gpu=0", "whole number"),
            ("gpu=-1", "whole number"),
            ("gpu=1=2", "whole number"),
        ] {
            let error = text.parse::<ResourceArg>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_named_in_the_error(text in "[a-c.=0-3 ü]{0,8}|\\PC*") {
            match text.parse::<ResourceArg>() {
                Ok(read) => {
                    let number = text.rsplit('=').next().unwrap();
                    proptest::prop_assert!(text.starts_with(&read.name) && read.amount > 0);
                    proptest::prop_assert_eq!(number.parse::<u32>().unwrap(), read.amount);
                }
                Err(error) => proptest::prop_assert!(error.contains(&text)),
            }
        }
    }
}
