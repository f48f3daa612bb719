//! HTTPS, with the certificates that the host trusts.

use super::{FetchError, http};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::sync::{Arc, OnceLock};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

static TRUSTING: OnceLock<Arc<RootCertStore>> = OnceLock::new();

/// Sends a request over a connection that is made secure first.
pub async fn send(
    stream: TcpStream,
    host: &str,
    insecure: bool,
    request: Request<Empty<Bytes>>,
) -> Result<Response<Incoming>, FetchError> {
    let name =
        ServerName::try_from(host.to_string()).map_err(|e| FetchError::lasting(format!("host {host:?}: {e}")))?;
    let config = config(insecure).map_err(|e| FetchError::passing(format!("TLS: {e}")))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    http::send(stream, request).await
}

fn config(insecure: bool) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    Ok(if insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Unchecked(provider))).with_no_client_auth()
    } else {
        let roots = Arc::clone(TRUSTING.get_or_init(|| Arc::new(roots())));
        builder.with_root_certificates(roots).with_no_client_auth()
    })
}

/// The certificates that the host trusts; those that cannot be read are left out.
fn roots() -> RootCertStore {
    let mut store = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "a certificate of the host cannot be read");
    }
    store.add_parsable_certificates(found.certs);
    store
}

/// Takes every certificate, as the artifact's `insecure` asks; signatures of the handshake still count.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
