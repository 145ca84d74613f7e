//go:build e2e

package imagestore

import (
	"crypto/tls"
	"crypto/x509"
)

// clientTLS trusts one authority.
func clientTLS(ca []byte) *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}
