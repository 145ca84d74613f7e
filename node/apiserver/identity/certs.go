// Package identity obtains and renews the certificates that identify this machine to an API server, and the kubeconfig that names them.
//
// It owns the files of the certificate directory. It must not send anything but certificate signing requests.
package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"monopod/internal/atomicfile"
	"monopod/node/apiserver/client"
)

// patience is the time after which an unanswered request for a certificate is replaced by another one. answerEvery is the first interval of
// checks for the answer; it grows to lastAnswer.
const (
	patience    = 15 * time.Minute
	answerEvery = time.Second
	lastAnswer  = 30 * time.Second
)

// certificate describes a certificate that is kept, and how it is requested.
type certificate struct {
	// file holds certificate and key, PEM.
	file   string
	signer string
	usages []certificatesv1.KeyUsage
	// names are those of a server.
	ips []net.IP
	dns []string
}

// Config of a Keeper.
type Config struct {
	// NodeName is who the certificates are for.
	NodeName string
	// Kubeconfig is the file that says which server, and who this machine is to it. Bootstrap, which may be empty, is the one with which to
	// ask for a certificate when Kubeconfig does not exist.
	Kubeconfig, Bootstrap string
	// CertDir is where certificates are kept.
	CertDir string
	// Version is what the client says it is.
	Version string
	// CheckEvery is how often the names of the serving certificate are compared with Addresses, those of this machine.
	CheckEvery time.Duration
	Addresses  func() []corev1.NodeAddress
	// FirstWait and LastWait bound the waits after failures.
	FirstWait, LastWait time.Duration
	Log                 *slog.Logger
}

// Keeper obtains and renews the certificates that identify this machine to an API server. Its only state is its files.
type Keeper struct {
	cfg Config
	log *slog.Logger
}

// New returns a Keeper. It does no I/O.
func New(cfg Config) *Keeper { return &Keeper{cfg: cfg, log: cfg.Log} }

// ClientCertificateFile and ServingCertificateFile are files of the certificate directory: certificate and key, PEM.
const (
	ClientCertificateFile  = "kubelet-client-current.pem"
	ServingCertificateFile = "kubelet-server-current.pem"
)

// Client is the certificate that identifies this machine as a node.
func (k *Keeper) Client() certificate {
	return certificate{
		file: filepath.Join(k.cfg.CertDir, ClientCertificateFile), signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
		usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
	}
}

// Serving is the certificate of the server that answers for logs and exec, for the addresses of now.
func (k *Keeper) Serving() certificate {
	c := certificate{
		file: filepath.Join(k.cfg.CertDir, ServingCertificateFile), signer: certificatesv1.KubeletServingSignerName,
		usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
	}
	for _, at := range k.cfg.Addresses() {
		if ip := net.ParseIP(at.Address); ip != nil {
			c.ips = append(c.ips, ip)
		} else if at.Address != "" {
			c.dns = append(c.dns, at.Address)
		}
	}
	return c
}

// Join makes the kubeconfig when there is none, with a certificate that the bootstrap kubeconfig gets.
func (k *Keeper) Join(ctx context.Context) error {
	_, err := os.Stat(k.cfg.Kubeconfig)
	if k.cfg.Bootstrap == "" || err == nil && !k.expired() {
		return err
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	boot, err := client.LoadKubeconfig(k.cfg.Bootstrap)
	if err != nil {
		return fmt.Errorf("bootstrap kubeconfig: %w", err)
	}
	cluster, err := client.CurrentCluster(boot)
	if err != nil {
		return fmt.Errorf("bootstrap kubeconfig %s: %w", k.cfg.Bootstrap, err)
	}
	want := k.Client()
	if leaf, err := ReadCertificate(want.file); err != nil || time.Now().After(leaf.NotAfter) {
		client, err := client.Open(k.cfg.Bootstrap, k.cfg.Version, k.log)
		if err != nil {
			return fmt.Errorf("bootstrap kubeconfig: %w", err)
		}
		defer client.Close()
		k.log.Info("requesting a client certificate", "server", cluster.Server)
		if err := k.obtain(ctx, client, want); err != nil {
			return err
		}
	}
	b, err := clientcmd.Write(*client.KubeconfigOf(cluster, want.file))
	if err != nil {
		return err
	}
	return writeSecret(k.cfg.Kubeconfig, b)
}

// expired reports whether the certificate that join obtained can no longer be used.
func (k *Keeper) expired() bool {
	file := k.Client().file
	c, err := client.ReadKubeconfig(k.cfg.Kubeconfig)
	if err != nil || c.CertFile != file {
		return false // it is somebody else's
	}
	leaf, err := ReadCertificate(file)
	return err != nil || time.Now().After(leaf.NotAfter)
}

// writeSecret replaces a file that only root may read.
func writeSecret(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, b, 0o600)
}

// ReadCertificate returns the first certificate of a file that also has its key.
func ReadCertificate(file string) (*x509.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		return nil, err
	}
	return pair.Leaf, nil
}

// renewAt returns when to request the next certificate: between 70 and 90 % of the lifetime of this one, but not before a quarter of the
// lifetime that remained when it was received. The moment depends on nothing but the certificate.
func renewAt(leaf *x509.Certificate, came time.Time) time.Time {
	sum := sha256.Sum256(leaf.Raw)
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	at := leaf.NotBefore.Add(life*7/10 + life/5*time.Duration(sum[0])/256)
	if early := came.Add(leaf.NotAfter.Sub(came) / 4); early.After(at) && early.Before(leaf.NotAfter) { // signers set NotBefore to a while ago
		return early
	}
	return at
}

// due returns how long the certificate of a file remains usable.
func (c *certificate) due() time.Duration {
	leaf, err := ReadCertificate(c.file)
	if err != nil {
		return 0
	}
	fi, err := os.Stat(c.file)
	if err != nil || !c.names(leaf) {
		return 0
	}
	return time.Until(renewAt(leaf, fi.ModTime()))
}

// names reports whether a certificate is for the wanted names.
func (c *certificate) names(leaf *x509.Certificate) bool {
	names := func(ips []net.IP, dns []string) []string {
		all := slices.Clone(dns)
		for _, ip := range ips {
			all = append(all, ip.String())
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	return len(c.ips)+len(c.dns) == 0 || slices.Equal(names(c.ips, c.dns), names(leaf.IPAddresses, leaf.DNSNames))
}

// Rotate keeps a certificate that does not end, and is for the names that are wanted at the time. Without one it asks for the first.
func (k *Keeper) Rotate(ctx context.Context, c *client.Client, wanted func() certificate) error {
	want := wanted()
	if want.signer == certificatesv1.KubeAPIServerClientKubeletSignerName && c.Config.CertFile != want.file {
		return nil // who we are comes from somewhere else
	}
	w := client.NewWaits(k.cfg.FirstWait, k.cfg.LastWait)
	for ctx.Err() == nil {
		want = wanted()
		if left := want.due(); left > 0 {
			if len(want.ips)+len(want.dns) > 0 {
				left = min(left, k.cfg.CheckEvery)
			}
			client.Pause(ctx, left, nil)
			continue
		}
		err := k.obtain(ctx, c, want)
		if err == nil {
			k.log.Info("renewed the certificate", "file", want.file)
			if want.file == c.Config.CertFile {
				return ErrRenewed // what is open is open as who we were
			}
			if want.due() > 0 {
				w.Reset()
				continue
			}
			err = errOtherNames
		}
		if e := client.Fatal(err); e != nil || ctx.Err() != nil {
			return e
		}
		if w.News(err) {
			k.log.Warn("cannot renew the certificate; retrying", "file", want.file, "err", err)
		}
		client.Pause(ctx, w.Next(), nil)
	}
	return nil
}

var errOtherNames = errors.New("the signed certificate has other names, or expires immediately")

// obtain asks for a certificate, waits for it, and stores it with its key. A request that was made before and is not
// answered yet is the same request: its key is kept until then.
func (k *Keeper) obtain(ctx context.Context, c *client.Client, want certificate) error {
	end := time.Now().Add(patience)
	kept := want.file + ".key.tmp"
	key, err := k.keyIn(kept)
	if err != nil {
		return err
	}
	csr, err := k.signingRequest(key, want)
	if err != nil {
		return err
	}
	var got certificatesv1.CertificateSigningRequest
	to := client.Request{API: client.CertificatesAPI, Resource: "certificatesigningrequests"}
	err = c.Do(ctx, to.With(http.MethodPost, csr))
	if err != nil && !client.IsConflict(err) {
		return fmt.Errorf("request a certificate: %w", err)
	}
	to.Name, to.Into = csr.Name, &got
	w := &client.Waits{First: min(answerEvery, k.cfg.FirstWait), Last: lastAnswer}
	for len(got.Status.Certificate) == 0 {
		client.Pause(ctx, w.Next(), nil)
		if ctx.Err() != nil { // the next run goes on with this request
			return ctx.Err()
		}
		if time.Now().After(end) {
			return errors.Join(fmt.Errorf("the certificate signing request %s is not signed yet: see `kubectl certificate approve`", csr.Name), os.Remove(kept))
		}
		got = certificatesv1.CertificateSigningRequest{}
		err := c.Do(ctx, to.With(http.MethodGet, nil))
		if client.IsNotFound(err) {
			return errors.Join(fmt.Errorf("the certificate signing request %s has been deleted", csr.Name), os.Remove(kept))
		}
		if e := client.Fatal(err); e != nil {
			return e
		}
		for _, cond := range got.Status.Conditions {
			if cond.Type == certificatesv1.CertificateDenied || cond.Type == certificatesv1.CertificateFailed {
				return errors.Join(fmt.Errorf("the certificate signing request %s: %s %s", csr.Name, cond.Type, client.Clip(cond.Message)), os.Remove(kept))
			}
		}
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return err
	}
	if err := usable(got.Status.Certificate, encoded); err != nil {
		return errors.Join(fmt.Errorf("the certificate of %s: %w", csr.Name, err), os.Remove(kept))
	}
	both := append(append([]byte{}, got.Status.Certificate...), encoded...)
	if err := writeSecret(want.file, both); err != nil {
		return err
	}
	return os.Remove(kept)
}

// usable returns what is wrong with a certificate; nil: nothing.
func usable(cert, key []byte) error {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	if time.Now().After(pair.Leaf.NotAfter) {
		return fmt.Errorf("it expired on %v", pair.Leaf.NotAfter)
	}
	return nil
}

// keyIn returns the key of a file, or makes both.
func (k *Keeper) keyIn(file string) (*ecdsa.PrivateKey, error) {
	if b, err := client.ReadFile(file); err == nil {
		if block, _ := pem.Decode(b); block != nil {
			if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
				return key, nil
			}
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	b, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return key, writeSecret(file, b)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

// signingRequest asks for a certificate of that key, under a name that follows from key and purpose.
func (k *Keeper) signingRequest(key *ecdsa.PrivateKey, want certificate) (*certificatesv1.CertificateSigningRequest, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "system:node:" + k.cfg.NodeName, Organization: []string{"system:nodes"}},
		IPAddresses: want.ips, DNSNames: want.dns,
	}, key)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(append(public, want.signer...))
	return &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: "node-csr-" + hex.EncodeToString(sum[:16])},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: want.signer, Usages: want.usages,
		},
	}, nil
}

// ErrRenewed ends a session because the client certificate is another one now.
var ErrRenewed = errors.New("renewed the client certificate")
