//! The embedded renderer, and workarounds for mrml's faults.

use longshore_mail::mjml::{EmbeddedRenderer, MjmlTemplate, Renderer, Roots};

use super::{page, template};

fn html(text: &str) -> String {
    EmbeddedRenderer::render_blocking(&template(text)).expect("it renders").html
}

fn fault(text: &str) -> String {
    let template = MjmlTemplate::from_text(text, &Roots::default());
    template
        .and_then(|template| EmbeddedRenderer::render_blocking(&template))
        .expect_err("it is refused")
        .to_string()
}

#[test]
fn a_line_break_in_a_style_stays_a_blank() {
    let html = html(&page("<p style=\"color:red;\n\tmargin:0\" title='a \"b\" \u{200b}'>hello</p>"));
    assert!(html.contains("color:red;  margin:0"), "{html}");
    assert!(!html.contains('\\'), "{html}");
    assert!(html.contains("a &#34;b&#34; &#8203;"), "{html}");
}

#[test]
fn a_title_may_have_quotes() {
    let text = page("x").replace("<mj-body>", "<mj-head><mj-title>say \"no\"</mj-title></mj-head><mj-body>");
    let html = html(&text);
    assert!(html.contains("aria-label=\"say &#34;no&#34;\""), "{html}");
}

#[test]
fn files_with_carriage_returns_render() {
    let text = page("hello").replace("><", ">\r\n<");
    assert!(html(&text).contains("hello"));
}

#[test]
fn what_browsers_take_renders() {
    let html = html(&format!("\n<?xml version=\"1.0\"?>\n{}\n", page("1 < 2 <B ID=x hidden>b</B><br>")));
    assert!(html.contains("1 &lt; 2"), "{html}");
    assert!(html.contains("<b ID=\"x\""), "{html}");
}

#[test]
fn the_last_class_and_the_first_attribute_count() {
    let text = "<mjml><mj-head><mj-attributes>
<mj-class name=\"a\" color=\"#aaaaaa\" /><mj-class name=\"b\" color=\"#bbbbbb\" />
</mj-attributes></mj-head><mj-body><mj-section><mj-column>
<mj-text mj-class=\"a b\">x</mj-text><mj-text color=\"#111111\" color=\"#222222\">y</mj-text>
</mj-column></mj-section></mj-body></mjml>";
    let html = html(text);
    assert!(html.contains("#bbbbbb") && !html.contains("#aaaaaa"), "{html}");
    assert!(html.contains("#111111") && !html.contains("#222222"), "{html}");
}

#[test]
fn styles_are_written_into_the_elements_that_they_are_for() {
    let text = page("<p class=\"big\">x</p>").replace(
        "<mjml>",
        "<mjml><mj-head><mj-style inline=\"inline\">.big { font-size: 40px }</mj-style></mj-head>",
    );
    assert!(html(&text).contains("font-size: 40px"), "{}", html(&text));
}

#[test]
fn what_it_cannot_do_is_refused_with_its_line() {
    assert_eq!(
        fault("<mjml>\n<mj-body>\n<mj-chart /></mj-body></mjml>"),
        "line 3: <mj-chart> is no component of MJML"
    );
    let selector = "<mjml><mj-head>\n<mj-html-attributes></mj-html-attributes></mj-head></mjml>";
    assert!(fault(selector).starts_with("line 2: <mj-html-attributes>: the reference renderer supports it"));
    assert_eq!(fault(&page("\n<p>one")), "line 2: <p> is not closed before </mj-text> of line 2");
    assert_eq!(fault("<mjml><mj-body>\n\n<mj-section"), "line 3: a tag that never ends");
    assert_eq!(fault("hello"), "line 1: there is text outside of <mjml>");
}

#[test]
fn what_the_library_refuses_is_told_by_line_and_not_by_byte() {
    let text = fault("<mjml>\n<mj-head>\n<mj-section></mj-section></mj-head></mjml>");
    assert!(text.starts_with("line 3: "), "{text}");
    assert!(!text.contains("position"), "{text}");
}

#[tokio::test]
async fn it_renders_beside_whoever_waits_for_it() {
    let embedded = EmbeddedRenderer::new(2).await.expect("threads");
    let rendered = embedded.render(&template(&page("hello"))).await.expect("it renders");
    assert!(rendered.html.contains("hello"));
}
