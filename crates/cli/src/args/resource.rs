//! Parses `--resource NAME=N`: what a unit needs beside slots, and what a worker offers.

use longshore::ResourceAmount;
use std::collections::{BTreeMap, BTreeSet};

use crate::error::{WithHint, usage};

/// An amount of a named resource, or the names of its instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceArg {
    name: String,
    amount: ResourceAmount,
    instances: Option<Vec<String>>,
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
        let name = name.to_owned();
        let Some(list) = amount.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
            return Ok(Self { name, amount: amount.parse().map_err(bad)?, instances: None });
        };
        let instances: Vec<String> = list.split(',').map(|name| name.trim().to_owned()).collect();
        if instances.iter().any(|name| name.is_empty() || !name.chars().all(|c| fits(c) || "/:".contains(c)))
        {
            return Err(bad("a list of instances is as [0,2] or [GPU-a1,GPU-b2]"));
        }
        let amount = ResourceAmount::whole(u32::try_from(instances.len()).unwrap_or(u32::MAX));
        Ok(Self { name, amount, instances: Some(instances) })
    }
}

/// What a worker offers.
#[cfg(feature = "standard")]
pub struct OfferedResources {
    pub amounts: BTreeMap<String, u32>,
    /// Names of instances.
    pub instances: BTreeMap<String, Vec<String>>,
}

fn collect<T>(
    typed: &[ResourceArg],
    entry: impl Fn(&ResourceArg) -> anyhow::Result<(String, T)>,
) -> anyhow::Result<BTreeMap<String, T>> {
    let mut names = BTreeSet::new();
    let entries = typed.iter().map(|one| match names.insert(&one.name) {
        true => entry(one),
        false => Err(usage(format!("resource `{}` is given twice", one.name))),
    });
    entries.collect()
}

/// All resources by name, in whole numbers; a duplicate name is an error.
pub fn collect_resources(typed: &[ResourceArg]) -> anyhow::Result<BTreeMap<String, u32>> {
    collect(typed, |ResourceArg { name, amount, instances }| {
        if instances.is_some() {
            return Err(usage(format!("`{name}` is a list of instances")))
                .hint("`longshore worker --server` names instances");
        }
        let number = amount.as_whole().ok_or_else(|| usage(format!("{name}={amount} is not a whole number")));
        Ok((name.clone(), number.hint("a script of a pool may request a fraction")?))
    })
}

/// What a worker of a pool offers.
#[cfg(feature = "standard")]
pub fn collect_offered(typed: &[ResourceArg]) -> anyhow::Result<OfferedResources> {
    let plain = typed.iter().map(|one| ResourceArg { instances: None, ..one.clone() });
    let amounts = collect_resources(&plain.collect::<Vec<_>>())?;
    let named = typed.iter().filter_map(|one| Some((one.name.clone(), one.instances.clone()?)));
    Ok(OfferedResources { amounts, instances: named.collect() })
}

/// What a script requests, as its unit's weight has it: a fraction in hundredths.
#[cfg(feature = "standard")]
pub fn collect_requests(typed: &[ResourceArg]) -> anyhow::Result<BTreeMap<String, u32>> {
    collect(typed, |ResourceArg { name, amount, instances }| match instances {
        Some(_) => {
            Err(usage(format!("a script cannot choose instances of `{name}`"))).hint("request a number")
        }
        None => Ok(amount.to_weight(name)),
    })
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

    #[cfg(feature = "standard")]
    #[test]
    fn a_worker_names_instances_and_a_script_requests_fractions() {
        let named: ResourceArg = "gpu=[2,GPU-a1]".parse().unwrap();
        let offered = collect_offered(std::slice::from_ref(&named)).unwrap();
        assert_eq!(offered.amounts, BTreeMap::from([("gpu".to_owned(), 2)]));
        assert_eq!(offered.instances["gpu"], ["2", "GPU-a1"]);
        let half: ResourceArg = "gpu=0.5".parse().unwrap();
        let half = std::slice::from_ref(&half);
        assert_eq!(collect_requests(half).unwrap(), BTreeMap::from([("gpu/100".to_owned(), 50)]));
        let error = collect_resources(half).unwrap_err().to_string();
        assert!(error.contains("gpu=0.5 is not a whole number"), "{error}");
        assert!(collect_requests(&[named]).is_err());
    }

    #[test]
    fn what_is_no_resource_is_refused_with_the_reason() {
        for (text, why) in [
            ("gpu", "no `=`"),
            ("=2", "a name has"),
            ("a b=2", "a name has"),
            ("gpu=", "a number above 0"),
            ("gpu=0", "a number above 0"),
            ("gpu=-1", "a number above 0"),
            ("gpu=1=2", "a number above 0"),
            ("gpu=0.125", "two decimals"),
            ("gpu=[0,]", "a list of instances"),
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
                    proptest::prop_assert!(text.starts_with(&read.name));
                    proptest::prop_assert_eq!(number.parse::<f64>().unwrap().to_string(), read.amount.to_string());
                }
                Err(error) => proptest::prop_assert!(error.contains(&text)),
            }
        }
    }
}
