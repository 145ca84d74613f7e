package authority_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/clientcmd"

	"monopod/node/kubeapi/authority"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// machine is a directory with an authority, a clock and names.
type machine struct {
	dir       string
	now       time.Time
	dns       []string
	addresses []netip.Addr
}

func newMachine(t *testing.T) *machine {
	return &machine{
		dir: filepath.Join(t.TempDir(), "pki", "api"), now: time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC),
		dns: []string{"edge-1"}, addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")},
	}
}

// start returns the authority as a new process has it.
func (m *machine) start() *authority.Authority {
	return authority.New(authority.Config{
		Dir: m.dir, Now: func() time.Time { return m.now }, Names: func() ([]string, []netip.Addr) { return m.dns, m.addresses },
	})
}

func (m *machine) file(name string) string { return filepath.Join(m.dir, name) }

// first returns the first certificate of a file.
func first(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		t.Fatalf("no certificate: %s", data)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	check(t, err)
	return cert
}

// server returns the certificate of the server, as the listener gets it.
func (m *machine) server(t *testing.T, a *authority.Authority, known *x509.Certificate) *x509.Certificate {
	t.Helper()
	check(t, a.EnsureServer(known))
	data, err := os.ReadFile(a.ServerFile())
	check(t, err)
	return first(t, data)
}

func verify(t *testing.T, a *authority.Authority, cert *x509.Certificate, name string, usage x509.ExtKeyUsage, now time.Time) error {
	t.Helper()
	bundle, err := a.Bundle()
	check(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err = cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func TestNothingIsMadeBeforeItIsNeeded(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.start()
	if _, err := os.Stat(m.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("New made the directory: %v", err)
	}
}

func TestTheAuthorityIsMadeOnceForRootOnly(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	bundle, err := m.start().Bundle()
	check(t, err)
	if strings.Contains(string(bundle), "PRIVATE") {
		t.Error("clients get the key")
	}
	ca := first(t, bundle)
	if !ca.IsCA || !ca.MaxPathLenZero || ca.NotBefore.Year() != 1970 || ca.NotAfter.Year() < 2056 {
		t.Errorf("%+v", ca)
	}
	for path, want := range map[string]fs.FileMode{m.dir: 0o700, m.file("ca.pem"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	again, err := m.start().Bundle()
	check(t, err)
	if !bytes.Equal(bundle, again) {
		t.Error("another process makes another one")
	}
	other, err := newMachine(t).start().Bundle()
	check(t, err)
	if first(t, other).Subject.CommonName == ca.Subject.CommonName {
		t.Error("two authorities have one name")
	}
}

// TestADamagedAuthorityIsNeverReplaced: all clients trust it.
func TestADamagedAuthorityIsNeverReplaced(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	_, err := m.start().Bundle()
	check(t, err)
	good, err := os.ReadFile(m.file("ca.pem"))
	check(t, err)
	other := newMachine(t)
	_, err = other.start().Bundle()
	check(t, err)
	foreign, err := os.ReadFile(other.file("ca.pem"))
	check(t, err)
	check(t, m.start().EnsureServer(nil))
	leaf, err := os.ReadFile(m.file("server.pem"))
	check(t, err)
	at := bytes.Index(good, []byte("-----BEGIN PRIVATE"))
	broken := bytes.Replace(good, []byte("\nMI"), []byte("\nMA"), 1)
	for name, data := range map[string][]byte{
		"empty": {}, "text": []byte("rubbish"), "no key": good[:at], "no certificate": good[at:], "half": good[:at+60],
		"another key": append(append([]byte{}, good[:at]...), foreign[bytes.Index(foreign, []byte("-----BEGIN PRIVATE")):]...),
		"a leaf":      leaf, "flipped": broken, "huge": bytes.Repeat([]byte("x"), 1<<20),
	} {
		check(t, os.WriteFile(m.file("ca.pem"), data, 0o600))
		a := m.start()
		_, err := a.Bundle()
		_, _, clientErr := a.Client("u", nil)
		for _, err := range []error{err, clientErr, a.EnsureServer(nil)} {
			if err == nil || !strings.Contains(err.Error(), m.file("ca.pem")) || !strings.Contains(err.Error(), "monopod kubeconfig") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if now, err := os.ReadFile(m.file("ca.pem")); err != nil || !bytes.Equal(now, data) {
			t.Errorf("%s: the file is changed: %v", name, err)
		}
		check(t, os.WriteFile(m.file("ca.pem"), good, 0o600))
		if _, err := a.Bundle(); err != nil {
			t.Errorf("%s: restored, it is not used without a restart: %v", name, err)
		}
	}
	check(t, os.Remove(m.file("ca.pem")))
	check(t, os.Mkdir(m.file("ca.pem"), 0o700))
	if _, err := m.start().Bundle(); err == nil {
		t.Error("a directory is accepted")
	}
}

func TestTheServerHasAllNamesOfTheMachine(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := m.start()
	cert := m.server(t, a, nil)
	for _, name := range []string{"edge-1", "localhost", "kubernetes", "kubernetes.default.svc", "127.0.0.1", "::1", "192.0.2.7", "2001:db8::7"} {
		if err := verify(t, a, cert, name, x509.ExtKeyUsageServerAuth, m.now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if verify(t, a, cert, "other", x509.ExtKeyUsageServerAuth, m.now) == nil || verify(t, a, cert, "", x509.ExtKeyUsageClientAuth, m.now) == nil {
		t.Error("it is good for more than it should be")
	}
	if info, err := os.Stat(a.ServerFile()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestTheCertificateOfTheServerIsRenewed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(m *machine, cert *x509.Certificate)
		want   bool
	}{
		"nothing": {func(*machine, *x509.Certificate) {}, false},
		"an hour": {func(m *machine, _ *x509.Certificate) { m.now = m.now.Add(time.Hour) }, false},
		"a new address": {func(m *machine, _ *x509.Certificate) {
			m.addresses = append(m.addresses, netip.MustParseAddr("198.51.100.1"))
		}, true},
		"the same, with a zone":    {func(m *machine, _ *x509.Certificate) { m.addresses[1] = m.addresses[1].WithZone("eth0") }, false},
		"an address less":          {func(m *machine, _ *x509.Certificate) { m.addresses = nil }, false},
		"a new name":               {func(m *machine, _ *x509.Certificate) { m.dns = []string{"edge-2"} }, true},
		"it expires":               {func(m *machine, cert *x509.Certificate) { m.now = cert.NotAfter.Add(-24 * time.Hour) }, true},
		"it has expired":           {func(m *machine, cert *x509.Certificate) { m.now = cert.NotAfter.Add(time.Hour) }, true},
		"the clock is set to 1970": {func(m *machine, _ *x509.Certificate) { m.now = time.Unix(60, 0) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			a := m.start()
			cert := m.server(t, a, nil)
			tt.change(m, cert)
			m.now = m.now.Add(time.Minute) // names are compared again
			running := m.server(t, a, cert)
			if got := !running.Equal(cert); got != tt.want {
				t.Errorf("renewed in the process: %v", got)
			}
			if got := m.server(t, m.start(), nil); !got.Equal(running) {
				t.Error("renewed once more at the next start")
			}
			if err := verify(t, a, running, "localhost", x509.ExtKeyUsageServerAuth, m.now); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestADamagedCertificateOfTheServerIsReplaced(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := m.start()
	cert := m.server(t, a, nil)
	for name, data := range map[string]string{"empty": "", "text": "rubbish", "no key": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))} {
		check(t, os.WriteFile(a.ServerFile(), []byte(data), 0o600))
		if got := m.server(t, m.start(), nil); got.Equal(cert) || verify(t, a, got, "edge-1", x509.ExtKeyUsageServerAuth, m.now) != nil {
			t.Errorf("%s: it is not replaced", name)
		}
	}
	check(t, os.Remove(m.file("ca.pem")))
	fresh := m.start()
	if got := m.server(t, fresh, nil); verify(t, fresh, got, "edge-1", x509.ExtKeyUsageServerAuth, m.now) != nil {
		t.Error("it is of the authority that was removed")
	}
}

func TestClientCertificatesExpire(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := m.start()
	issue := func() *x509.Certificate {
		t.Helper()
		data, _, err := a.Client("alice", []string{"monopod:view", "ops"})
		check(t, err)
		return first(t, data)
	}
	cert := issue()
	if cert.Subject.CommonName != "alice" || strings.Join(cert.Subject.Organization, " ") != "ops monopod:view" {
		t.Errorf("%v", cert.Subject)
	}
	for name, tt := range map[string]struct {
		at time.Time
		ok bool
	}{
		"now": {m.now, true}, "in 1970": {time.Unix(60, 0), true}, "after 89 days": {m.now.Add(89 * 24 * time.Hour), true}, "after 91 days": {m.now.Add(91 * 24 * time.Hour), false},
	} {
		if err := verify(t, a, cert, "", x509.ExtKeyUsageClientAuth, tt.at); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if verify(t, a, cert, "", x509.ExtKeyUsageServerAuth, m.now) == nil {
		t.Error("a client can be a server")
	}
	m.now = time.Unix(60, 0) // a machine without a battery
	early := issue()
	if err := verify(t, a, early, "", x509.ExtKeyUsageClientAuth, time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Errorf("issued in 1970: %v", err)
	}
	m.now = first(t, must(t, a)).NotAfter.Add(-time.Hour)
	if late := issue(); late.NotAfter.After(m.now.Add(time.Hour)) {
		t.Error("it is valid for longer than its authority")
	}
}

func must(t *testing.T, a *authority.Authority) []byte {
	t.Helper()
	bundle, err := a.Bundle()
	check(t, err)
	return bundle
}

func TestConcurrentClientsGetOneAuthority(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := m.start()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			data, _, err := a.Client("u", nil)
			if err != nil {
				t.Error(err)
				return
			}
			if err := a.EnsureServer(nil); err != nil {
				t.Error(err)
			}
			if err := verify(t, a, first(t, data), "", x509.ExtKeyUsageClientAuth, m.now); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// TestANewNameIsInTheCertificateAtOnce: a pod that uses the API connects to its Service within the interval of the checks.
func TestANewNameIsInTheCertificateAtOnce(t *testing.T) {
	t.Parallel()
	now, ip := time.Now(), netip.MustParseAddr("10.96.0.1")
	var all []netip.Addr
	a := authority.New(authority.Config{Dir: t.TempDir(), Now: func() time.Time { return now }, Names: func() ([]string, []netip.Addr) { return nil, all }})
	read := func(known *x509.Certificate) *x509.Certificate {
		check(t, a.EnsureServer(known))
		data, err := os.ReadFile(a.ServerFile())
		check(t, err)
		return first(t, data)
	}
	cert := read(nil)
	all = []netip.Addr{ip}
	if cert = read(cert); cert.VerifyHostname(ip.String()) == nil {
		t.Error("the names are compared for each connection")
	}
	a.NamesChanged()
	if err := read(cert).VerifyHostname(ip.String()); err != nil {
		t.Error(err)
	}
}

func TestAKubeconfigIsReadByKubectl(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := m.start()
	data, err := a.Kubeconfig(authority.Client{User: "alice", Groups: []string{"monopod:edit"}, Namespace: "team", Server: "https://192.0.2.7:6443", Cluster: "edge-1"})
	check(t, err)
	loaded, err := clientcmd.Load(data)
	check(t, err)
	check(t, clientcmd.Validate(*loaded))
	if loaded.CurrentContext != "alice@edge-1" || loaded.Contexts["alice@edge-1"].Namespace != "team" {
		t.Errorf("%+v", loaded)
	}
	rest, err := clientcmd.RESTConfigFromKubeConfig(data)
	check(t, err)
	if rest.Host != "https://192.0.2.7:6443" || !bytes.Equal(rest.CAData, must(t, a)) || len(rest.KeyData) == 0 {
		t.Errorf("%+v", rest)
	}
	if err := verify(t, a, first(t, rest.CertData), "", x509.ExtKeyUsageClientAuth, m.now); err != nil {
		t.Error(err)
	}
	if !authority.IsOurs(data) {
		t.Error("it is not known again")
	}
	loaded.Contexts["alice@edge-1"].Namespace = "other"
	rewritten, err := clientcmd.Write(*loaded)
	check(t, err)
	if !authority.IsOurs(rewritten) {
		t.Errorf("it is not known again once kubectl has written it:\n%s", rewritten)
	}
	loaded.Clusters["foreign"] = loaded.Clusters["edge-1"].DeepCopy()
	loaded.Clusters["foreign"].Extensions = nil
	merged, err := clientcmd.Write(*loaded)
	check(t, err)
	for _, text := range []string{string(merged), "", "{", "kind: Config", "a: b", "[]"} {
		if authority.IsOurs([]byte(text)) {
			t.Errorf("another file is taken for ours:\n%s", text)
		}
	}
}

func TestKubeconfigsThatAreRefused(t *testing.T) {
	t.Parallel()
	a := newMachine(t).start()
	good := authority.Client{User: "alice", Server: "https://127.0.0.1:6443"}
	for want, change := range map[string]func(c *authority.Client){
		`user ""`:                     func(c *authority.Client) { c.User = "" },
		`user "a\nb"`:                 func(c *authority.Client) { c.User = "a\nb" },
		"names that begin with":       func(c *authority.Client) { c.User = "system:admin" },
		`group ""`:                    func(c *authority.Client) { c.Groups = []string{""} },
		"33 groups":                   func(c *authority.Client) { c.Groups = make([]string, 33) },
		`namespace "A"`:               func(c *authority.Client) { c.Namespace = "A" },
		`server "http://x"`:           func(c *authority.Client) { c.Server = "http://x" },
		`server ""`:                   func(c *authority.Client) { c.Server = "" },
		`server "https://u:p@x"`:      func(c *authority.Client) { c.Server = "https://u:p@x" },
		"253 printable ASCII charact": func(c *authority.Client) { c.User = strings.Repeat("x", 300) },
	} {
		c := good
		change(&c)
		if _, err := a.Kubeconfig(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := a.Kubeconfig(good); err != nil {
		t.Error(err)
	}
}
