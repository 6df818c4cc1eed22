//! Pictures: painted, scaled down and encoded. A box filter is enough to keep a thread busy.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use longshore_pool::{BoxError, Operations, PoolCall};
use serde_json::{Value, json};

const WIDTH: usize = 2400;
const HEIGHT: usize = 1000;

pub(crate) fn operations() -> Operations {
    Operations::stateless()
        .add_with("shrink", |(), call: &PoolCall, widths: Vec<usize>| shrink_to(call, &widths))
}

/// Paints a picture and scales it to these widths; the last one is shown.
fn shrink_to(call: &PoolCall, widths: &[usize]) -> Result<Value, BoxError> {
    let of = widths.len() + 1;
    let picture = Picture::paint();
    call.progress(&json!({"done": 1, "of": of}));
    let mut last = picture.pack()?;
    for (number, width) in widths.iter().enumerate() {
        if call.is_cancelled() {
            return Err("nobody wants it any more".into());
        }
        last = picture.shrink(*width).pack()?;
        call.progress(&json!({"done": number + 2, "of": of}));
    }
    let text = format!("{} copies of {WIDTH} × {HEIGHT} points", widths.len());
    let image = format!("data:image/png;base64,{}", STANDARD.encode(last));
    Ok(json!({"text": text, "image": image}))
}

struct Picture {
    width: usize,
    height: usize,
    /// Red, green and blue of each pixel.
    points: Vec<[u8; 3]>,
}

impl Picture {
    /// Paints a harbour in the evening.
    fn paint() -> Self {
        let points = (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| colour(x, y))).collect();
        Self { width: WIDTH, height: HEIGHT, points }
    }

    /// Scales to another width; each pixel is the mean of the pixels it replaces.
    fn shrink(&self, width: usize) -> Self {
        let width = width.clamp(1, self.width);
        let height = (self.height * width / self.width).max(1);
        let points = (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| {
            let columns = x * self.width / width..(x + 1) * self.width / width;
            let rows = y * self.height / height..(y + 1) * self.height / height;
            self.mean(columns, rows)
        });
        Self { width, height, points: points.collect() }
    }

    fn mean(&self, columns: std::ops::Range<usize>, rows: std::ops::Range<usize>) -> [u8; 3] {
        let count = (columns.len() * rows.len()).max(1) as u32;
        let mut sum = [0_u32; 3];
        for row in rows {
            for point in &self.points[row * self.width..][columns.clone()] {
                sum[0] += u32::from(point[0]);
                sum[1] += u32::from(point[1]);
                sum[2] += u32::from(point[2]);
            }
        }
        sum.map(|colour| (colour / count) as u8)
    }

    /// Encodes the picture as PNG.
    fn pack(&self) -> Result<Vec<u8>, png::EncodingError> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(self.points.as_flattened())?;
        writer.finish()?;
        Ok(bytes)
    }
}

/// The row where the sea begins.
const HORIZON: usize = 620;

fn colour(x: usize, y: usize) -> [u8; 3] {
    if is_crane(x, y) {
        return [28, 30, 48];
    }
    let (across, down) = (x as f32 - 1550.0, y as f32 - 520.0);
    if y < HORIZON && across * across + down * down < 19_600.0 {
        return [255, 226, 150];
    }
    match y < HORIZON {
        true => mix([38, 44, 96], [250, 150, 96], y as f32 / HORIZON as f32),
        false => {
            let depth = (y - HORIZON) as f32 / (HEIGHT - HORIZON) as f32;
            let wave = (x as f32 / 37.0 + (y * y) as f32 / 900.0).sin() * (y as f32 / 7.0).sin();
            mix([214, 122, 92], [18, 34, 66], (depth + 0.12 * wave).clamp(0.0, 1.0))
        }
    }
}

/// Three cranes on the quay, and the quay.
fn is_crane(x: usize, y: usize) -> bool {
    let quay = x < 1250 && (600..640).contains(&y);
    let cranes = [180, 520, 860].into_iter().any(|left| {
        let (mast, beam) = (left..left + 34, left - 60..left + 270);
        mast.contains(&x) && (260..620).contains(&y)
            || beam.contains(&x) && (290..312).contains(&y)
            || (left + 220..left + 226).contains(&x) && (312..470).contains(&y)
            || (left + 190..left + 256).contains(&x) && (470..510).contains(&y)
    });
    quay || cranes
}

fn mix(from: [u8; 3], to: [u8; 3], share: f32) -> [u8; 3] {
    let one = |place: usize| (f32::from(from[place]) * (1.0 - share) + f32::from(to[place]) * share) as u8;
    [one(0), one(1), one(2)]
}
