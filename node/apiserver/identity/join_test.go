package identity

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/node/apiserver/apitest"
	"monopod/node/apiserver/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// office is an API server that keeps signing requests, and answers them as decide says.
type office struct {
	t          *testing.T
	authority  *apitest.Authority
	kubeconfig string

	mu   sync.Mutex
	kept map[string]*certificatesv1.CertificateSigningRequest
	// posted are the names of all requests in order, answered how often their state was read.
	posted   []string
	answered int
	decide   func(*certificatesv1.CertificateSigningRequest)
}

func newOffice(t *testing.T) *office {
	t.Helper()
	o := &office{t: t, authority: apitest.NewAuthority(t), kept: map[string]*certificatesv1.CertificateSigningRequest{}}
	o.decide = o.signs(time.Hour)
	o.kubeconfig = apitest.Liar(t, o.serve)
	return o
}

func (o *office) serve(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.Method == http.MethodPost {
		var csr certificatesv1.CertificateSigningRequest
		if err := json.NewDecoder(r.Body).Decode(&csr); err != nil {
			o.t.Error(err)
		}
		o.posted = append(o.posted, csr.Name)
		if o.kept[csr.Name] != nil {
			refuse(w, http.StatusConflict)
			return
		}
		o.kept[csr.Name] = &csr
		_ = json.NewEncoder(w).Encode(csr)
		return
	}
	o.answered++
	csr := o.kept[path.Base(r.URL.Path)]
	if csr == nil {
		refuse(w, http.StatusNotFound)
		return
	}
	o.decide(csr)
	_ = json.NewEncoder(w).Encode(csr)
}

func refuse(w http.ResponseWriter, code int) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code})
}

// signs issues what is asked for.
func (o *office) signs(life time.Duration) func(*certificatesv1.CertificateSigningRequest) {
	return func(csr *certificatesv1.CertificateSigningRequest) {
		csr.Status.Certificate = o.authority.Sign(o.t, csr.Spec.Request, life)
	}
}

// keeper is one of a machine that has only the bootstrap kubeconfig.
func (o *office) keeper() *Keeper {
	dir := o.t.TempDir()
	return New(Config{
		NodeName: "n1", Kubeconfig: filepath.Join(dir, "etc", "kubeconfig"), Bootstrap: o.kubeconfig, CertDir: filepath.Join(dir, "pki"), Version: "test",
		CheckEvery: time.Millisecond, FirstWait: time.Millisecond, LastWait: time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Addresses: func() []corev1.NodeAddress { return []corev1.NodeAddress{{Address: "192.0.2.1"}, {Address: "n1"}, {}} },
	})
}

func (o *office) join(k *Keeper) {
	o.t.Helper()
	if err := k.Join(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
}

func TestAMachineJoinsOnce(t *testing.T) {
	o := newOffice(t)
	k := o.keeper()
	o.join(k)
	boot, err := client.ReadKubeconfig(o.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	file := k.Client().file
	c, err := client.ReadKubeconfig(k.cfg.Kubeconfig)
	if err != nil || c.Host != boot.Host || c.CertFile != file || c.KeyFile != file || c.BearerToken != "" {
		t.Errorf("kubeconfig: %+v, %v", c, err)
	}
	leaf, err := ReadCertificate(file)
	if err != nil || leaf.Subject.CommonName != "system:node:n1" || !slices.Equal(leaf.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("certificate: %+v, %v", leaf, err)
	}
	spec := o.kept[o.posted[0]].Spec
	if spec.SignerName != "kubernetes.io/kube-apiserver-client-kubelet" || !slices.Equal(spec.Usages, []certificatesv1.KeyUsage{"digital signature", "client auth"}) {
		t.Errorf("it asked for %+v", spec)
	}
	for _, secret := range []string{file, k.cfg.Kubeconfig} {
		if fi, err := os.Stat(secret); err != nil || fi.Mode() != 0o600 {
			t.Errorf("%v, %v", fi, err)
		}
	}
	o.join(k)
	if len(o.posted) != 1 {
		t.Errorf("it asked %d times", len(o.posted))
	}
}

func TestAKubeconfigOfTheAdministratorIsLeftAlone(t *testing.T) {
	o := newOffice(t)
	k := o.keeper()
	k.cfg.Kubeconfig = o.kubeconfig
	o.join(k)
	if len(o.posted) > 0 {
		t.Error("it asked for a certificate")
	}
	k = o.keeper()
	k.cfg.Bootstrap = ""
	if err := k.Join(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without any kubeconfig: %v", err)
	}
}

func TestAnEndedCertificateIsReplacedWithTheBootstrapKubeconfig(t *testing.T) {
	o := newOffice(t)
	k := o.keeper()
	o.join(k)
	file := k.Client().file
	old := o.authority.Issue(t, apitest.Request{Name: "system:node:n1", For: -time.Second})
	if err := os.WriteFile(file, append(old.Cert, old.Key...), 0o600); err != nil {
		t.Fatal(err)
	}
	o.join(k)
	if leaf, err := ReadCertificate(file); err != nil || time.Now().After(leaf.NotAfter) || len(o.posted) != 2 || o.posted[0] == o.posted[1] {
		t.Errorf("%v, %v; it asked for %v", leaf, err, o.posted)
	}
}

// A certificate that was stored right before a crash is used: the kubeconfig alone is missing.
func TestAStoredCertificateIsUsedForTheKubeconfig(t *testing.T) {
	o := newOffice(t)
	k := o.keeper()
	o.join(k)
	if err := os.Remove(k.cfg.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	o.join(k)
	if _, err := client.ReadKubeconfig(k.cfg.Kubeconfig); err != nil || len(o.posted) != 1 {
		t.Errorf("%v; it asked %d times", err, len(o.posted))
	}
}

func TestAnUnansweredRequestIsContinuedByTheNextRun(t *testing.T) {
	o := newOffice(t)
	k := o.keeper()
	ctx, cancel := context.WithCancel(t.Context())
	o.decide = func(*certificatesv1.CertificateSigningRequest) {
		if o.answered == 3 {
			cancel()
		}
	}
	if err := k.Join(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	o.mu.Lock() // the server may still be busy with what was canceled
	o.decide = o.signs(time.Hour)
	o.mu.Unlock()
	o.join(k)
	if len(o.posted) != 2 || o.posted[0] != o.posted[1] {
		t.Errorf("it asked for %v", o.posted)
	}
	if left, err := filepath.Glob(filepath.Join(k.cfg.CertDir, "*.tmp")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	o := newOffice(t)
	for want, decide := range map[string]func(*office, *certificatesv1.CertificateSigningRequest){
		"Denied not today": func(_ *office, csr *certificatesv1.CertificateSigningRequest) {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Message: "not today"}}
		},
		"Failed " + strings.Repeat("x", 100): func(_ *office, csr *certificatesv1.CertificateSigningRequest) {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateFailed, Message: strings.Repeat("x", 5000)}}
		},
		"has been deleted": func(o *office, csr *certificatesv1.CertificateSigningRequest) { delete(o.kept, csr.Name) },
		"it expired on":    func(o *office, csr *certificatesv1.CertificateSigningRequest) { o.signs(-time.Second)(csr) },
		"private key does not match": func(o *office, csr *certificatesv1.CertificateSigningRequest) {
			csr.Status.Certificate = o.authority.Issue(o.t, apitest.Request{Name: "system:node:n1"}).Cert
		},
		"failed to find any PEM data": func(_ *office, csr *certificatesv1.CertificateSigningRequest) { csr.Status.Certificate = []byte("x") },
	} {
		k := o.keeper()
		o.posted = nil
		o.decide = func(csr *certificatesv1.CertificateSigningRequest) { decide(o, csr) }
		err := k.Join(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 2*client.MaxReason {
			t.Errorf("%s: %v", want, err)
		}
		// The next request is another one: this one will never be answered differently.
		o.decide = o.signs(time.Hour)
		o.join(k)
		if len(o.posted) != 2 || o.posted[0] == o.posted[1] {
			t.Errorf("%s: it asked for %v", want, o.posted)
		}
	}
}

func TestKeysAreKeptUntilTheyAreDamaged(t *testing.T) {
	k, file := newOffice(t).keeper(), filepath.Join(t.TempDir(), "new", "key")
	first, err := k.keyIn(file)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := k.keyIn(file); err != nil || !same.Equal(first) {
		t.Errorf("it is another key: %v", err)
	}
	for _, text := range []string{"", "x", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte("x")}))} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if other, err := k.keyIn(file); err != nil || other.Equal(first) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// connected is a client of a machine that has joined.
func (o *office) connected(k *Keeper) *client.Client {
	o.t.Helper()
	o.join(k)
	c, err := client.Open(k.cfg.Kubeconfig, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(c.Close)
	return c
}

func TestANewClientCertificateEndsTheSession(t *testing.T) {
	o := newOffice(t)
	o.decide = o.signs(6 * time.Second) // it is valid since a minute: nine tenths of that have passed
	k := o.keeper()
	c := o.connected(k)
	before, err := ReadCertificate(k.Client().file)
	if err != nil {
		t.Fatal(err)
	}
	o.decide = o.signs(time.Hour)
	ended := time.Now().Add(-time.Hour) // it came long ago
	if err := os.Chtimes(k.Client().file, ended, ended); err != nil {
		t.Fatal(err)
	}
	if err := k.Rotate(t.Context(), c, k.Client); !errors.Is(err, ErrRenewed) {
		t.Error(err)
	}
	if after, err := ReadCertificate(k.Client().file); err != nil || after.Equal(before) {
		t.Errorf("it is the same: %v", err)
	}
}

func TestOnlyOwnClientCertificatesAreRenewed(t *testing.T) {
	o := newOffice(t)
	k := o.keeper()
	c := o.connected(k)
	k.cfg.CertDir = t.TempDir() // that of the kubeconfig is another file now
	if err := k.Rotate(t.Context(), c, k.Client); err != nil || len(o.posted) != 1 {
		t.Errorf("%v; it asked %d times", err, len(o.posted))
	}
}

func TestTheServingCertificateFollowsTheAddresses(t *testing.T) {
	o := newOffice(t)
	k := o.keeper()
	c := o.connected(k)
	ctx, cancel := context.WithCancel(t.Context())
	address := "192.0.2.1"
	k.cfg.Addresses = func() []corev1.NodeAddress { // Rotate asks before each look at the file
		leaf, err := ReadCertificate(filepath.Join(k.cfg.CertDir, ServingCertificateFile))
		switch {
		case err == nil && leaf.VerifyHostname("192.0.2.2") == nil:
			cancel()
		case err == nil && leaf.VerifyHostname("192.0.2.1") == nil:
			address = "192.0.2.2"
		}
		return []corev1.NodeAddress{{Address: address}, {Address: "n1"}}
	}
	if err := k.Rotate(ctx, c, k.Serving); err != nil {
		t.Error(err)
	}
	leaf, err := ReadCertificate(k.Serving().file)
	if err != nil || leaf.VerifyHostname("n1") != nil || leaf.VerifyHostname("192.0.2.1") == nil || !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
		t.Errorf("%+v %v", leaf, err)
	}
	if len(o.posted) != 3 { // one for the client, and one for each address
		t.Errorf("it asked for %v", o.posted)
	}
}
