//! The reference renderer: npm's mjml in Node workers.

use std::path::{Path, PathBuf};

use longshore_mail::mjml::{EmbeddedRenderer, NpmRenderer, RenderError, Renderer, differences};

use super::{page, template};

/// Where `./test` installs npm's mjml.
fn folder() -> PathBuf {
    std::env::var_os("LONGSHORE_MJML")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mjml"), PathBuf::from)
}

pub(super) async fn reference() -> NpmRenderer {
    let hint = "npm's mjml: ./test installs it, or `npm install --prefix target/mjml mjml`";
    NpmRenderer::start(&folder(), 1).await.expect(hint)
}

#[tokio::test]
async fn it_renders_and_its_complaints_come_with_lines() {
    let reference = reference().await;
    assert!(reference.name().starts_with("npm mjml "), "{}", reference.name());
    let text = page("hello").replace("<mj-text>", "\n<mj-text colour=\"red\">");
    let rendered = reference.render(&template(&text)).await.expect("it renders");
    assert!(rendered.html.contains("hello"));
    let complaints: Vec<String> = rendered.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(complaints, ["line 2: <mj-text>: Attribute colour is illegal"]);
    reference.close().await;
}

#[tokio::test]
async fn what_it_refuses_will_not_be_tried_again() {
    let reference = reference().await;
    let error = reference.render(&template("hello")).await.expect_err("that is no MJML");
    assert!(matches!(error, RenderError::Refused { .. }), "{error}");
    assert!(!error.is_retryable());
    reference.close().await;
}

#[tokio::test]
async fn it_says_so_if_mjml_is_not_installed() {
    let empty = tempfile::TempDir::new().expect("a folder");
    let error = NpmRenderer::start(empty.path(), 1).await.expect_err("it is not there");
    assert!(error.to_string().contains("npm's mjml is not there"), "{error}");
}

/// `CARGO_MANIFEST_DIR` stands for a secret: the test's own process has it, and needs no lock to set it.
#[tokio::test]
async fn its_processes_do_not_inherit_secrets() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let module = folder.path().join("node_modules/mjml");
    std::fs::create_dir_all(&module).expect("a module");
    std::fs::write(module.join("package.json"), r#"{"version":"0"}"#).expect("its version");
    let shows = "module.exports = () => ({ html: Object.keys(process.env).join(' '), errors: [] })";
    std::fs::write(module.join("index.js"), shows).expect("its code");
    let renderer = NpmRenderer::start(folder.path(), 1).await.expect("it starts");
    let shown = renderer.render(&template(&page("x"))).await.expect("it renders").html;
    assert!(shown.contains("PATH") && !shown.contains("CARGO_MANIFEST_DIR"), "{shown}");
    renderer.close().await;
}

#[tokio::test]
async fn it_never_reads_a_file_for_a_template() {
    let reference = reference().await;
    let text = page("x").replace("<mj-body>", "<mj-body><mj-include path=\"/etc/hostname\" type=\"html\" />");
    // Our template rejects it; the worker does not read it either.
    let refused = longshore_mail::mjml::MjmlTemplate::from_text(&text, &Default::default());
    assert!(refused.is_err());
    for hidden in super::HIDDEN {
        let text = page("x").replace("<mj-body>", &format!("<mj-body>\n{hidden}"));
        let error = reference.render(&template(&text)).await.expect_err("it is refused");
        assert!(matches!(error, RenderError::Template(_)), "{error}");
    }
    reference.close().await;
}

#[tokio::test]
async fn both_render_a_plain_page_the_same_but_for_what_is_known() {
    let reference = reference().await;
    let template = template(&page("hello"));
    let there = reference.render(&template).await.expect("it renders").html;
    let here = EmbeddedRenderer::render_blocking(&template).expect("it renders").html;
    let differences = differences(&there, &here);
    assert!(differences.len() < 20, "{differences:#?}");
    assert!(differences.iter().all(|one| !one.text.contains("hello")), "{differences:#?}");
    reference.close().await;
}
