//! Arguments of `longshore submit http --url …`, an alternative to a JSON payload of kind `http`.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

/// The request, instead of a payload.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options for kind http, instead of a payload")]
pub struct HttpArgs {
    /// URL to call
    #[arg(long, value_name = "URL", conflicts_with_all = ["payload", "lines"])]
    pub url: Option<String>,
    /// HTTP method [default: POST]
    #[arg(long, value_name = "METHOD", requires = "url")]
    pub method: Option<String>,
    /// Request header, as 'Authorization: Bearer env:TOKEN' (may be repeated)
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    pub header: Vec<HeaderArg>,
    /// Request body: JSON if it is an object or a list, text otherwise
    #[arg(long, value_name = "TEXT", requires = "url", conflicts_with = "body_file")]
    pub body: Option<String>,
    /// File with the request body (`-`: stdin)
    #[arg(long, value_name = "FILE", requires = "url")]
    pub body_file: Option<PathBuf>,
    /// Follow redirects
    #[arg(long, requires = "url")]
    pub follow: bool,
}

/// One header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeaderArg {
    pub name: String,
    pub value: String,
}

impl std::str::FromStr for HeaderArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The message does not repeat the text, which may hold a secret.
        let (name, value) = text.split_once(':').ok_or("there is no `:` between name and value")?;
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() {
            return Err("there is no name before the `:`".to_owned());
        }
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_a_name_and_a_value() {
        let header: HeaderArg = "Authorization: Bearer env:TOKEN".parse().unwrap();
        assert_eq!((&*header.name, &*header.value), ("Authorization", "Bearer env:TOKEN"));
        assert_eq!("X:".parse::<HeaderArg>().unwrap().value, "");
        assert!("X".parse::<HeaderArg>().unwrap_err().contains("no `:`"));
        assert!(": x".parse::<HeaderArg>().unwrap_err().contains("no name"));
    }
}
