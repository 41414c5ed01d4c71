//! Style, script and icon. Their addresses have a hash of what is in them, so browsers may keep them for ever.

use std::sync::LazyLock;

use axum::extract::{Path, Request};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use super::nothing_here;

/// An asset.
pub(super) struct Asset {
    /// Where it is, with its hash.
    pub(super) address: String,
    kind: &'static str,
    text: &'static str,
}

impl Asset {
    fn new(name: &str, extension: &str, kind: &'static str, text: &'static str) -> Self {
        let digest = Sha256::digest(text.as_bytes());
        let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Asset { address: format!("/assets/{name}-{hash}.{extension}"), kind, text }
    }
}

pub(super) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("console", "css", "text/css; charset=utf-8", include_str!("assets/console.css")));
pub(super) static SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("console", "js", "text/javascript; charset=utf-8", include_str!("assets/console.js")));
pub(super) static ICON: LazyLock<Asset> = LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("assets/icon.svg")));

pub(super) async fn serve(Path(name): Path<String>, request: Request) -> Response {
    let assets = [&*STYLE, &*SCRIPT, &*ICON];
    match assets.into_iter().find(|asset| asset.address.strip_prefix("/assets/") == Some(&name)) {
        Some(asset) => {
            let headers = [(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
            (headers, asset.text).into_response()
        }
        None => nothing_here(request).await,
    }
}
