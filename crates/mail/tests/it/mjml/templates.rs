//! Our own templates, which use every component, in both renderers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use longshore_mail::html_to_text;
use longshore_mail::mjml::{EmbeddedRenderer, MjmlTemplate, Renderer, Roots};

use super::reference::reference;

pub(super) fn templates() -> Vec<(PathBuf, MjmlTemplate)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
    let roots = Roots::new([&folder]).expect("it is there");
    let paths = std::fs::read_dir(&folder).expect("read").map(|entry| entry.expect("an entry").path());
    let whole = |path: &PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        name.ends_with(".mjml") && !name.starts_with('_')
    };
    let mut paths: Vec<PathBuf> = paths.filter(whole).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), MjmlTemplate::read(&path, &roots).expect("read"))).collect()
}

/// The names of a page's elements in order, without its head and Outlook's conditional comments.
fn elements(html: &str) -> Vec<String> {
    let body = html.split_once("<body").expect("a body").1;
    let mut seen = String::new();
    let mut rest = body;
    while let Some((before, comment)) = rest.split_once("<!--") {
        seen.push_str(before);
        rest = comment.split_once("-->").expect("comments end").1;
    }
    seen.push_str(rest);
    let name = |tag: &str| {
        let name: String = tag.chars().take_while(char::is_ascii_alphanumeric).collect();
        name.to_ascii_lowercase()
    };
    seen.split('<').skip(1).map(name).filter(|name| !name.is_empty()).collect()
}

#[test]
fn every_component_is_in_one_of_them() {
    let all: String = templates().iter().map(|(_, template)| template.text().to_owned()).collect();
    let used: BTreeSet<&str> =
        all.split('<').map(|tag| tag.split([' ', '>', '\n', '/']).next().unwrap_or("")).collect();
    let components = "mjml mj-head mj-body mj-accordion mj-accordion-element mj-accordion-text mj-accordion-title \
mj-all mj-attributes mj-breakpoint mj-button mj-carousel mj-carousel-image mj-class mj-column mj-divider mj-font \
mj-group mj-hero mj-image mj-navbar mj-navbar-link mj-preview mj-raw mj-section mj-social mj-social-element \
mj-spacer mj-style mj-table mj-text mj-title mj-wrapper";
    for component in components.split_whitespace() {
        assert!(used.contains(component), "no template has {component}");
    }
    assert!(templates().len() >= 12);
}

#[tokio::test]
async fn both_renderers_make_the_same_elements_and_words_of_them() {
    let reference = reference().await;
    for (path, template) in templates() {
        let here = EmbeddedRenderer::render_blocking(&template).expect("it renders").html;
        let there = reference.render(&template).await.expect("it renders").html;
        let name = path.display();
        // One renderer puts white space between elements.
        let words = |html: &str| html_to_text(html).split_whitespace().collect::<String>();
        assert_eq!(words(&here), words(&there), "{name}");
        assert_eq!(elements(&here), elements(&there), "{name}");
        assert!(!here.contains("\\n") && !here.contains("\\\"") && !here.contains("\\u{"), "{name}");
    }
    reference.close().await;
}

#[tokio::test]
async fn every_page_that_was_put_together_is_the_page_that_is_rendered_whole() {
    let embedded = EmbeddedRenderer::new(1).await.expect("it starts");
    for (path, template) in templates() {
        let whole = EmbeddedRenderer::render_blocking(&template).expect("it renders");
        for _ in 0..2 {
            let page = embedded.render(&template).await.expect("it renders");
            assert_eq!(page, whole, "{}", path.display());
        }
        // The same template with other texts, which may be rendered from the first one's skeleton.
        let text = template.text().replace("The", "<b title=\"Die &amp; 'x'\">Th</b>e");
        let other = MjmlTemplate::from_text(&text, &Roots::default()).expect("it includes nothing");
        let page = embedded.render(&other).await.ok();
        assert_eq!(page, EmbeddedRenderer::render_blocking(&other).ok(), "{}", path.display());
    }
}
