//! What a template may include, and the locations of errors in included files.

use std::fs;
use std::path::Path;

use longshore_mail::mjml::{EmbeddedRenderer, MjmlTemplate, Roots};
use tempfile::TempDir;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("made");
        fs::write(path, text).expect("written");
    }
    folder
}

fn read(folder: &Path, root: &Path) -> Result<MjmlTemplate, String> {
    let roots = Roots::new([root]).expect("it is there");
    MjmlTemplate::read(&folder.join("mail.mjml"), &roots).map_err(|fault| fault.to_string())
}

const OUTER: &str = "<mjml><mj-head>\n<mj-include path=\"parts/look.css\" type=\"css\" css-inline=\"inline\" />\n\
<mj-include path=\"parts/head.mjml\" />\n</mj-head><mj-body>\n<mj-include path=\"parts/hello.mjml\"/>\n\
<mj-include type=\"html\" path=\"parts/raw.html\"></mj-include>\n</mj-body></mjml>";

#[test]
fn mjml_styles_and_html_are_put_into_their_places() {
    let folder = folder(&[
        ("mail.mjml", OUTER),
        ("parts/look.css", ".x { color: #123456 }"),
        ("parts/head.mjml", "<mjml><mj-head><mj-title>Told</mj-title></mj-head></mjml>"),
        (
            "parts/hello.mjml",
            "<mj-section><mj-column><mj-include path=\"deep/text.mjml\"/></mj-column></mj-section>",
        ),
        ("parts/deep/text.mjml", "\u{feff}<mj-text>\r\n<p class=\"x\">hello</p></mj-text>"),
        ("parts/raw.html", "<hr id=\"raw\">"),
    ]);
    let template = read(folder.path(), folder.path()).expect("it is complete");
    let html = EmbeddedRenderer::render_blocking(&template).expect("it renders").html;
    for part in ["<title>Told</title>", "color: #123456", "hello", "id=\"raw\""] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
}

#[test]
fn a_fault_is_told_with_the_file_that_it_is_in() {
    let folder = folder(&[
        ("mail.mjml", "<mjml><mj-body>\n<mj-include path=\"part.mjml\" />\n<mj-oops/>\n</mj-body></mjml>"),
        ("part.mjml", "<mj-section>\n\n<mj-chart/></mj-section>"),
    ]);
    let fault = |()| {
        let template = read(folder.path(), folder.path()).expect("it is complete");
        EmbeddedRenderer::render_blocking(&template).expect_err("it is refused")
    };
    let error = fault(());
    assert_eq!((error.location.line, error.message.as_str()), (3, "<mj-chart> is no component of MJML"));
    assert!(error.location.file.expect("it is a file").ends_with("part.mjml"));
    fs::write(folder.path().join("part.mjml"), "<mj-section>\n\n</mj-section>").expect("written");
    let error = fault(());
    assert_eq!((error.location.line, error.message.as_str()), (3, "<mj-oops> is no component of MJML"));
    assert!(error.location.file.expect("it is a file").ends_with("mail.mjml"));
}

#[test]
fn nothing_outside_of_the_allowed_folders_is_read() {
    let folder = folder(&[("in/mail.mjml", ""), ("secret.html", "the secret")]);
    let inside = folder.path().join("in");
    std::os::unix::fs::symlink("../secret.html", inside.join("link.html")).expect("linked");
    let absolute = folder.path().join("secret.html").display().to_string();
    for path in ["../secret.html", "link.html", &absolute, "/etc/passwd", "/dev/null", "."] {
        let text = format!("<mjml><mj-body>\n<mj-include type=\"html\" path=\"{path}\" /></mj-body></mjml>");
        fs::write(inside.join("mail.mjml"), text).expect("written");
        let text = read(&inside, &inside).expect_err("it is refused");
        assert!(text.contains("mail.mjml:2: cannot include"), "{text}");
        assert!(!text.contains("the secret"), "{text}");
    }
    fs::write(inside.join("mail.mjml"), "<mj-include path=\"mail.mjml\" />").expect("written");
    assert!(
        MjmlTemplate::read(&inside.join("mail.mjml"), &Roots::default()).is_err(),
        "no roots, no includes"
    );
}

#[test]
fn an_include_is_one_however_it_is_written() {
    for tag in ["MJ-INCLUDE", "Mj-Include", "mj-\rinclude"] {
        let text = format!("<mjml><mj-body><{tag} path=\"/etc/passwd\"/></mj-body></mjml>");
        let refused = MjmlTemplate::from_text(&text, &Roots::default()).expect_err("it is outside");
        assert!(refused.message.contains("outside"), "{tag}: {refused}");
    }
    let folder = folder(&[("mail.mjml", "<MJ-INCLUDE path=\"a.mjml\"></MJ-Include>"), ("a.mjml", "<b/>")]);
    let template = read(folder.path(), folder.path()).expect("it is complete");
    assert_eq!(template.text().trim(), "<b/>");
}

#[test]
fn what_includes_itself_is_refused() {
    let folder = folder(&[
        ("mail.mjml", "<mj-include path=\"a.mjml\"/>"),
        ("a.mjml", "<mj-include path=\"b.mjml\"/>"),
        ("b.mjml", "\n<mj-include path=\"a.mjml\"/>"),
    ]);
    let text = read(folder.path(), folder.path()).expect_err("it would never end");
    assert!(text.contains("b.mjml:2: ") && text.contains("includes itself"), "{text}");
}

#[test]
fn what_would_be_lost_or_break_out_is_refused() {
    let include = |line: &str| format!("<mjml><mj-head>\n{line}</mj-head></mjml>");
    let cases = [
        (
            "<mj-include path=\"x.mjml\"/>",
            "<mjml><mj-body><mj-text>a</mj-text></mj-body></mjml>",
            "would be lost",
        ),
        ("<mj-include path=\"x.mjml\" type=\"css\"/>", "</mj-style><mj-raw>", "must not contain"),
        ("<mj-include path=\"x.mjml\" type=\"text\"/>", "", "no type of include"),
        ("<mj-include />", "", "without a path"),
    ];
    for (line, text, why) in cases {
        let folder = folder(&[("mail.mjml", &include(line)), ("x.mjml", text)]);
        let text = read(folder.path(), folder.path()).expect_err("it is refused");
        assert!(text.contains(why), "{text}");
    }
}
