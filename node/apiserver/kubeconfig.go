package apiserver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"
)

// kubeconfig is what counts of such a file.
type kubeconfig struct {
	APIVersion     string         `json:"apiVersion"`
	Kind           string         `json:"kind"`
	CurrentContext string         `json:"current-context"`
	Clusters       []namedCluster `json:"clusters"`
	Users          []namedUser    `json:"users"`
	Contexts       []namedContext `json:"contexts"`
}

type namedCluster struct {
	Name    string  `json:"name"`
	Cluster cluster `json:"cluster"`
}

type namedUser struct {
	Name string `json:"name"`
	User user   `json:"user"`
}

type namedContext struct {
	Name    string `json:"name"`
	Context struct {
		Cluster string `json:"cluster"`
		User    string `json:"user"`
	} `json:"context"`
}

type cluster struct {
	Server        string `json:"server"`
	CA            string `json:"certificate-authority,omitempty"`
	CAData        []byte `json:"certificate-authority-data,omitempty"`
	TLSServerName string `json:"tls-server-name,omitempty"`
	Insecure      bool   `json:"insecure-skip-tls-verify,omitempty"`
	ProxyURL      string `json:"proxy-url,omitempty"`
}

type user struct {
	Cert         string         `json:"client-certificate,omitempty"`
	CertData     []byte         `json:"client-certificate-data,omitempty"`
	Key          string         `json:"client-key,omitempty"`
	KeyData      []byte         `json:"client-key-data,omitempty"`
	Token        string         `json:"token,omitempty"`
	TokenFile    string         `json:"tokenFile,omitempty"`
	Exec         map[string]any `json:"exec,omitempty"`
	AuthProvider map[string]any `json:"auth-provider,omitempty"`
	Username     string         `json:"username,omitempty"`
}

// maxFile is the largest kubeconfig, certificate or token that is read.
const maxFile = 1 << 20

// target is the current context of a kubeconfig: where to, and as whom.
type target struct {
	cluster cluster
	user    user
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return b, err
}

// readTarget reads a kubeconfig. Paths in it are relative to its directory.
func readTarget(path string) (*target, error) {
	b, err := readFile(path)
	if err != nil {
		return nil, err
	}
	t, err := parseTarget(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, p := range []*string{&t.cluster.CA, &t.user.Cert, &t.user.Key, &t.user.TokenFile} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(filepath.Dir(path), *p)
		}
	}
	return t, nil
}

func parseTarget(b []byte) (*target, error) {
	var k kubeconfig
	if err := yaml.Unmarshal(b, &k); err != nil {
		return nil, fmt.Errorf("not a kubeconfig: %w", err)
	}
	if k.Kind != "" && k.Kind != "Config" {
		return nil, fmt.Errorf("not a kubeconfig: it is of kind %s", k.Kind)
	}
	t := &target{}
	found := false
	for _, c := range k.Contexts {
		if c.Name != k.CurrentContext {
			continue
		}
		for _, x := range k.Clusters {
			if x.Name == c.Context.Cluster {
				t.cluster, found = x.Cluster, true
			}
		}
		for _, x := range k.Users {
			if x.Name == c.Context.User {
				t.user = x.User
			}
		}
	}
	if !found {
		return nil, fmt.Errorf("the context %q, which is the current one, or its cluster is not there", k.CurrentContext)
	}
	return t, t.check()
}

func (t *target) check() error {
	u, err := url.Parse(t.cluster.Server)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https":
		return fmt.Errorf("server %q is no https URL", t.cluster.Server)
	case len(t.user.Exec) > 0 || len(t.user.AuthProvider) > 0 || t.user.Username != "":
		return errors.New("users with exec, auth-provider or a password are not supported: use a client certificate or a token")
	case (t.user.Cert == "" && len(t.user.CertData) == 0) != (t.user.Key == "" && len(t.user.KeyData) == 0):
		return errors.New("a client certificate needs a key, and a key a certificate")
	}
	return nil
}

// tls is how to connect. The client certificate is read when a connection is made: it may have been renewed.
func (t *target) tls() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.cluster.TLSServerName, InsecureSkipVerify: t.cluster.Insecure} //nolint:gosec // only when the kubeconfig says so
	ca := t.cluster.CAData
	if len(ca) == 0 && t.cluster.CA != "" {
		var err error
		if ca, err = readFile(t.cluster.CA); err != nil {
			return nil, err
		}
	}
	if len(ca) > 0 {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("the certificate authority of the kubeconfig has no certificate")
		}
	}
	switch {
	case len(t.user.CertData) > 0:
		pair, err := tls.X509KeyPair(t.user.CertData, t.user.KeyData)
		if err != nil {
			return nil, fmt.Errorf("client certificate of the kubeconfig: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	case t.user.Cert != "":
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.user.Cert, t.user.Key)
			if err != nil {
				return nil, fmt.Errorf("client certificate: %w", err)
			}
			return &pair, nil
		}
	}
	return cfg, nil
}

// tokens is a token that may be in a file, which is read again once a minute.
type tokens struct {
	fixed, file string

	mu   sync.Mutex
	last string
	read time.Time
}

func (t *tokens) get() (string, error) {
	if t.file == "" {
		return t.fixed, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != "" && time.Since(t.read) < time.Minute {
		return t.last, nil
	}
	b, err := readFile(t.file)
	if err != nil && t.last == "" {
		return "", err
	}
	if err == nil {
		t.last = strings.TrimSpace(string(b))
	}
	t.read = time.Now()
	return t.last, nil
}
