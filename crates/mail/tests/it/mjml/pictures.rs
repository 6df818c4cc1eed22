//! Screenshots of both renderers' pages in Chromium, compared pixel by pixel.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use longshore_mail::mjml::{EmbeddedRenderer, Renderer};
use longshore_testkit::Browser;
use serde_json::json;

use super::reference::reference;
use super::templates::templates;

/// Replaces all images: needs no network.
const PICTURE: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='120' height='80'%3E%3Crect \
width='120' height='80' fill='%23678'/%3E%3C/svg%3E";
/// How many of 100,000 pixels may differ, because of rounded widths.
const MAY_DIFFER: f64 = 500.0;
/// Counts the pixels of 100,000 with a visible difference in brightness.
const COMPARE: &str = "(async (one, other) => {
  const load = (bytes) => new Promise((done, fail) => {
    const image = new Image();
    image.onload = () => done(image);
    image.onerror = fail;
    image.src = 'data:image/png;base64,' + bytes;
  });
  const [a, b] = [await load(one), await load(other)];
  if (a.width !== b.width || Math.abs(a.height - b.height) > 2) return 100000;
  const points = (image) => {
    const canvas = new OffscreenCanvas(a.width, Math.min(a.height, b.height)).getContext('2d');
    canvas.drawImage(image, 0, 0);
    return canvas.getImageData(0, 0, a.width, Math.min(a.height, b.height)).data;
  };
  const [p, q] = [points(a), points(b)];
  let differ = 0;
  for (let n = 0; n < p.length; n += 4) {
    const light = (d) => 0.3 * d[n] + 0.59 * d[n + 1] + 0.11 * d[n + 2];
    if (Math.abs(light(p) - light(q)) > 24) differ++;
  }
  return differ * 100000 / (p.length / 4);
})";

/// A page that loads nothing from the network.
fn offline(html: &str) -> String {
    let mut parts = html.split("https://");
    let mut page = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(['"', '\'', ')', ' ', '<']).unwrap_or(part.len());
        let address = &part[..end];
        match [".png", ".jpg", ".gif", ".svg"].iter().any(|kind| address.ends_with(kind)) {
            true => page.push_str(PICTURE),
            false => page.push_str("data:,"),
        }
        page.push_str(&part[end..]);
    }
    page
}

async fn picture(browser: &mut Browser, html: &str) -> String {
    let page = json!(offline(html));
    let show = format!("document.open(); document.write({page}); document.close(); 1");
    browser.evaluate(&show).await.expect("shown");
    browser.wait_for("[...document.images].every((image) => image.complete)").await.expect("all pictures");
    STANDARD.encode(browser.screenshot().await.expect("a picture"))
}

#[tokio::test]
async fn both_renderers_pages_look_the_same() {
    let reference = reference().await;
    let mut browser = Browser::open("data:text/html,<p>", 800, 700).await.expect("a browser");
    let mut differ = Vec::new();
    for (path, template) in templates() {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let here = EmbeddedRenderer::render_blocking(&template).expect("it renders").html;
        let there = reference.render(&template).await.expect("it renders").html;
        let (here, there) = (picture(&mut browser, &here).await, picture(&mut browser, &there).await);
        let script = format!("{COMPARE}({}, {})", json!(here), json!(there));
        let count = browser.evaluate(&script).await.expect("compared").as_f64().expect("a number");
        differ.push((name, count));
    }
    browser.close().await.expect("closed");
    reference.close().await;
    assert!(differ.iter().all(|(_, count)| *count <= MAY_DIFFER), "{differ:#?}");
}

#[test]
fn a_page_that_is_offline_asks_nobody() {
    let html = "<img src=\"https://e.org/x.png\"><a href='https://e.org'>x</a><style>@import url(https://f/css?x);</style>";
    let page = offline(html);
    assert!(!page.contains("https://") && page.contains(PICTURE), "{page}");
}
