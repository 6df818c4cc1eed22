//! Templates, includes, and the three renderers.

mod compiler;
mod http;
mod include;
mod mrml;
mod pictures;
mod reference;
mod templates;

use longshore_mail::mjml::{MjmlTemplate, Roots};

/// Includes that our lexer does not see as such, and another renderer might.
const HIDDEN: [&str; 3] = [
    "<?x > <mj-include path=\"/etc/passwd\" type=\"html\"/> ?>",
    "<!-- <MJ-INCLUDE path=\"/etc/passwd\"/> -->",
    "<mj-style>< </style><mj-Include path=\"/etc/passwd\"/></mj-style>",
];

fn page(text: &str) -> String {
    format!(
        "<mjml><mj-body><mj-section><mj-column><mj-text>{text}</mj-text></mj-column></mj-section></mj-body></mjml>"
    )
}

/// A template without includes.
fn template(text: &str) -> MjmlTemplate {
    MjmlTemplate::from_text(text, &Roots::default()).expect("it includes nothing")
}
