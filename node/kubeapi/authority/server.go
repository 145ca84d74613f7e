package authority

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"monopod/internal/atomicfile"
)

// ServerFile returns the file with the server certificate and its key, which EnsureServer writes.
func (a *Authority) ServerFile() string { return filepath.Join(a.dir, "server.pem") }

// checkNames is the interval at which the names of the machine are compared with those of the certificate.
const checkNames = 10 * time.Second

// NamesChanged makes the next EnsureServer compare the names: a client may use a new one at once.
func (a *Authority) NamesChanged() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.checked = time.Time{}
}

// EnsureServer writes the certificate of the server unless the file has one of this authority, for all names of the machine, that does not
// expire soon. known is the certificate last read from the file, or nil. Unlike the authority, a damaged one is replaced.
func (a *Authority) EnsureServer(known *x509.Certificate) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, err := a.loadLocked()
	if err != nil {
		return err
	}
	now := a.now()
	if known == nil {
		if data, err := atomicfile.Read(a.ServerFile(), maxFile); err == nil {
			known, _, _ = decode(data) // an unreadable one is replaced
		}
	} else if since := now.Sub(a.checked); since >= 0 && since < checkNames {
		return nil
	}
	a.checked = now
	dns, ips := a.serverNames()
	if known != nil && known.CheckSignatureFrom(s.cert) == nil && now.Add(renewAhead).Before(known.NotAfter) && serves(known, dns, ips) {
		return nil
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "kubernetes"}, DNSNames: dns, NotAfter: a.expiry(validServer), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, ip := range ips {
		template.IPAddresses = append(template.IPAddresses, ip.AsSlice())
	}
	der, key, err := s.sign(template)
	if err != nil {
		return fmt.Errorf("sign the certificate of the Kubernetes API: %w", err)
	}
	data, err := encode(der, key)
	if err != nil {
		return err
	}
	if err := a.write(a.ServerFile(), data); err != nil {
		return fmt.Errorf("write the certificate of the Kubernetes API: %w", err)
	}
	return nil
}

// maxNames bounds each kind of names in a certificate: a machine may have very many addresses.
const maxNames = 200

// serverNames returns all names and addresses of the server.
func (a *Authority) serverNames() (dns []string, ips []netip.Addr) {
	dns = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	ips = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	names, addresses := a.names()
	for _, n := range names {
		if len(dns) < maxNames && !slices.Contains(dns, n) {
			dns = append(dns, n)
		}
	}
	for _, ip := range addresses {
		if ip = ip.Unmap().WithZone(""); len(ips) < maxNames && ip.IsValid() && !slices.Contains(ips, ip) {
			ips = append(ips, ip)
		}
	}
	return dns, ips
}

// serves reports whether a certificate covers all names. It may have more: addresses that come and go need no new certificate.
func serves(cert *x509.Certificate, dns []string, ips []netip.Addr) bool {
	for _, name := range dns {
		if !slices.Contains(cert.DNSNames, name) {
			return false
		}
	}
	for _, ip := range ips {
		if !slices.ContainsFunc(cert.IPAddresses, net.IP(ip.AsSlice()).Equal) {
			return false
		}
	}
	return true
}
