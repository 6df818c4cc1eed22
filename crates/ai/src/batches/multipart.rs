//! Multipart form with a file, for uploads.

/// An encoded form.
pub(super) struct MultipartForm {
    pub(super) content_type: String,
    pub(super) body: Vec<u8>,
}

impl MultipartForm {
    /// A form of plain fields and one file.
    pub(super) fn new(fields: &[(&str, &str)], file_name: &str, file: &[u8]) -> Self {
        let boundary = boundary(file);
        let mut body = Vec::with_capacity(file.len() + 1024);
        for (name, value) in fields {
            let head =
                format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
            body.extend_from_slice(head.as_bytes());
        }
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; \
             filename=\"{file_name}\"\r\nContent-Type: application/jsonl\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(file);
        body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        Self { content_type: format!("multipart/form-data; boundary={boundary}"), body }
    }
}

/// A boundary that starts no line of the file. JSON lines start with a brace, so the first
/// candidate will do; the search makes other files safe, too.
fn boundary(file: &[u8]) -> String {
    let named = |number: u32| format!("longshore-{number}");
    let is_in = |word: &str| {
        let mark = format!("--{word}");
        file.split(|byte| *byte == b'\n').any(|line| line.starts_with(mark.as_bytes()))
    };
    (0..).map(named).find(|word| !is_in(word)).unwrap_or_else(|| named(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_its_fields_and_then_the_file() {
        let form = MultipartForm::new(&[("purpose", "batch")], "a.jsonl", b"{}\n");
        let body = String::from_utf8(form.body).unwrap();
        assert_eq!(
            body,
            "--longshore-0\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n\
             --longshore-0\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\
             Content-Type: application/jsonl\r\n\r\n{}\n\r\n--longshore-0--\r\n"
        );
        assert_eq!(form.content_type, "multipart/form-data; boundary=longshore-0");
    }

    #[test]
    fn the_boundary_is_nowhere_in_the_file() {
        let form = MultipartForm::new(&[], "a", b"x\n--longshore-0\n--longshore-1");
        assert!(form.content_type.ends_with("longshore-2"), "{}", form.content_type);
    }
}
