// Command standin stands in for a component of a control plane in tests of examples/control-plane, which have no real ones. Its name
// selects the component: etcd, kube-apiserver, kube-controller-manager or kube-scheduler. It accepts their flags, listens on their ports
// with the given certificates, answers their health checks, and connects to the component that it depends on with its client certificate:
// it is healthy only while that accepts it.
//
// The text appended to the program file defines its state: "\nSTANDIN VERSION [unwell]\n".
package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	c := &component{name: filepath.Base(os.Args[0]), flags: map[string]string{}}
	for _, arg := range os.Args[1:] {
		key, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		c.flags[key] = value
	}
	c.note("started")
	fail(c.describe())
	fail(c.start())
	<-stop
	c.note("ended")
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(1)
	}
}

type component struct {
	name, version string
	flags         map[string]string
	unwell        bool
	// below checks the component that this one needs; nil if it needs none.
	below func() error
	first sync.Once
}

// note prints a word with the current time.
func (c *component) note(word string) { fmt.Println(word, time.Now().UnixNano()) }

// describe reads the text appended to the program file.
func (c *component) describe() error {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer f.Close()
	const most = 256
	if _, err := f.Seek(-most, io.SeekEnd); err != nil {
		return err
	}
	end, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	_, text, ok := bytes.Cut(end, []byte("\nSTANDIN "))
	words := strings.Fields(string(text))
	if !ok || len(words) == 0 {
		return errors.New("nothing is appended to the program")
	}
	c.version, c.unwell = words[0], len(words) > 1 && words[1] == "unwell"
	return nil
}

func (c *component) start() error {
	switch c.name {
	case "etcd":
		return c.etcd()
	case "kube-apiserver":
		return c.apiserver()
	case "kube-controller-manager":
		return c.manager("10257", "system:kube-controller-manager")
	case "kube-scheduler":
		return c.manager("10259", "system:kube-scheduler")
	}
	return fmt.Errorf("there is no component %s", c.name)
}

// ServeHTTP answers health checks, and returns the identity of the client.
func (c *component) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/livez":
		fmt.Fprintln(w, "ok")
	case "/readyz", "/healthz":
		if err := c.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		c.first.Do(func() { c.note("ready") })
		fmt.Fprintln(w, "ok")
	case "/version":
		fmt.Fprint(w, c.version)
	case "/whoami":
		if len(r.TLS.PeerCertificates) > 0 {
			fmt.Fprint(w, r.TLS.PeerCertificates[0].Subject.CommonName)
		}
	default:
		http.NotFound(w, r)
	}
}

func (c *component) ready() error {
	if c.unwell {
		return errors.New("this version is unwell")
	}
	if c.below == nil {
		return nil
	}
	return c.below()
}

// etcd keeps the versions that have run in its data directory.
func (c *component) etcd() error {
	f, err := os.OpenFile(filepath.Join(c.flags["data-dir"], "versions"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, c.version); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	for _, kind := range []struct{ listen, prefix string }{{"listen-client-urls", ""}, {"listen-peer-urls", "peer-"}} {
		config, err := serving(c.flags[kind.prefix+"cert-file"], c.flags[kind.prefix+"key-file"], c.flags[kind.prefix+"trusted-ca-file"], tls.RequireAndVerifyClientCert)
		if err != nil {
			return err
		}
		for address := range strings.SplitSeq(c.flags[kind.listen], ",") {
			if err := c.serve(address, config); err != nil {
				return err
			}
		}
	}
	return c.serve(c.flags["listen-metrics-urls"], nil)
}

func (c *component) apiserver() error {
	config, err := serving(c.flags["tls-cert-file"], c.flags["tls-private-key-file"], c.flags["client-ca-file"], tls.VerifyClientCertIfGiven)
	if err != nil {
		return err
	}
	for _, name := range []string{"service-account-key-file", "service-account-signing-key-file", "requestheader-client-ca-file"} {
		if _, err := os.ReadFile(c.flags[name]); err != nil {
			return err
		}
	}
	for _, pair := range [][2]string{
		{"kubelet-client-certificate", "kubelet-client-key"}, {"proxy-client-cert-file", "proxy-client-key-file"},
	} {
		if _, err := tls.LoadX509KeyPair(c.flags[pair[0]], c.flags[pair[1]]); err != nil {
			return err
		}
	}
	pair, err := tls.LoadX509KeyPair(c.flags["etcd-certfile"], c.flags["etcd-keyfile"])
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(c.flags["etcd-cafile"])
	if err != nil {
		return err
	}
	ask, err := client(pair, pem)
	if err != nil {
		return err
	}
	c.below = func() error {
		_, err := ask(c.flags["etcd-servers"] + "/readyz")
		return err
	}
	return c.serve("https://:"+c.flags["secure-port"], config)
}

// manager is a component that connects to kube-apiserver under a name.
func (c *component) manager(port, name string) error {
	text, err := os.ReadFile(c.flags["kubeconfig"])
	if err != nil {
		return err
	}
	data := func(field string) []byte {
		value := regexp.MustCompile(`(?m)^ *` + field + `: (\S+)$`).FindSubmatch(text)
		if value == nil {
			return nil
		}
		decoded, _ := base64.StdEncoding.DecodeString(string(value[1]))
		return decoded
	}
	server := regexp.MustCompile(`(?m)^ *server: (\S+)$`).FindSubmatch(text)
	if server == nil {
		return errors.New("the kubeconfig has no server")
	}
	pair, err := tls.X509KeyPair(data("client-certificate-data"), data("client-key-data"))
	if err != nil {
		return err
	}
	ask, err := client(pair, data("certificate-authority-data"))
	if err != nil {
		return err
	}
	c.below = func() error {
		known, err := ask(string(server[1]) + "/whoami")
		if err == nil && known != name {
			err = fmt.Errorf("kube-apiserver knows this as %q", known)
		}
		return err
	}
	own, err := selfSigned()
	if err != nil {
		return err
	}
	return c.serve("https://"+net.JoinHostPort(c.flags["bind-address"], port), own)
}

// serve listens, and answers until the process exits.
func (c *component) serve(address string, config *tls.Config) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", u.Host)
	if err != nil {
		return err
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	go func() { fail(http.Serve(l, c)) }() //nolint:gosec // for tests
	return nil
}

func serving(cert, key, authority string, auth tls.ClientAuthType) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	pool, err := trust(pem)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: auth, MinVersion: tls.VersionTLS12}, err
}

func trust(pem []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("there is no authority in the file")
	}
	return pool, nil
}

// client returns a function that requests a page.
func client(pair tls.Certificate, authority []byte) (func(url string) (string, error), error) {
	pool, err := trust(authority)
	if err != nil {
		return nil, err
	}
	web := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}}
	return func(url string) (string, error) {
		r, err := web.Get(url)
		if err != nil {
			return "", err
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err == nil && r.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s: %s", url, r.Status, bytes.TrimSpace(body))
		}
		return string(body), err
	}, nil
}

// selfSigned returns the self-signed certificate of a manager.
func selfSigned() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "standin"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}, nil
}
