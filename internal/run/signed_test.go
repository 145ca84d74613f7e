package run

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/loopback"
	"monopod/internal/testfiles"
	"monopod/runner/runtimetest"
)

// minisigner signs as minisign does.
type minisigner struct {
	key    minisign.PrivateKey
	public string
}

func newMinisigner(t *testing.T) minisigner {
	t.Helper()
	public, key, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return minisigner{key, public.String()}
}

func (m minisigner) sign(body string, version int) string {
	return string(minisign.SignWithComments(m.key, []byte(body), fmt.Sprintf("version:%d", version), "of a test"))
}

// runs waits until a pod runs.
func runs(d *clitest.Daemon, name string) {
	d.T.Helper()
	d.Shows("Running", "get", "pod", name)
}

func TestOnlyWhatIsSignedRuns(t *testing.T) {
	t.Parallel()
	key, foreign := newMinisigner(t), newMinisigner(t)
	first, second := daemontest.PodYAML("first", runtimetest.ScriptServe), daemontest.PodYAML("second", runtimetest.ScriptServe)
	web := newManifestServer(t, map[string]string{"/pods.yaml": first})
	d := newDaemon(t, fmt.Sprintf("sources: [{name: fleet, url: %q, signature: {kind: minisign, keys: [%s]}}]", web.URL+"/pods.yaml", key.public))
	d.Start()
	says := func(body, signature, want string) {
		t.Helper()
		web.body.Store(&map[string]string{"/pods.yaml": body, "/pods.yaml.minisig": signature})
		d.Again()
		d.Shows(want, "get", "sources")
	}
	d.Shows("there is no signature", "get", "sources")
	if r := d.Cmd("get", "pods"); strings.Contains(r.Stdout, "first") {
		t.Errorf("it runs unsigned:\n%s", r.Stdout)
	}
	says(first, key.sign(first, 2), "Accepted")
	runs(d, "first")
	says(second, foreign.sign(second, 3), "not a key of the source")
	says(second, key.sign(first, 3), "does not match this answer")
	says(second, key.sign(second, 1), "version 1 is older than version 2")
	says(second, "", "there is no signature")
	says(second, "garbage", "the signature cannot be read")
	runs(d, "first")
	says(second, key.sign(second, 3), "Accepted")
	runs(d, "second")
	d.Gone("first")
}

// shelve pushes one file to a registry.
func shelve(t *testing.T, ref, data string) {
	t.Helper()
	r, err := name.ParseReference(ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer([]byte(data), "application/yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r, img); err != nil {
		t.Fatal(err)
	}
}

func TestPodsComeFromARegistryAndStartOfflineFromTheCopy(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0))))
	_ = srv.Listener.Close()
	srv.Listener = loopback.Listen(t)
	srv.Start()
	t.Cleanup(srv.Close)
	ref := strings.TrimPrefix(srv.URL, "http://") + "/fleet/pods:stable"
	shelve(t, ref, daemontest.PodYAML("first", runtimetest.ScriptServe))
	d := newDaemon(t, fmt.Sprintf("sources: [{name: fleet, url: %q}]", "oci://"+ref))
	d.Start()
	runs(d, "first")
	d.Shows("oci://"+ref, "get", "sources")
	shelve(t, ref, daemontest.PodYAML("second", runtimetest.ScriptServe))
	d.Again()
	runs(d, "second")
	d.Gone("first")
	d.End()

	srv.Close()
	d.Fake = runtimetest.NewFake() // a reboot: nothing runs
	d.Start()
	runs(d, "second")
	d.Shows("connection refused", "get", "sources")
}

func TestSignaturesAndRegistriesOfTheConfigurationAreChecked(t *testing.T) {
	key := newMinisigner(t).public
	for entry, want := range map[string]string{
		"url: 'http://a', signature: {kind: pgp, keys: [x]}":             `signature.kind: "pgp" is none of minisign, dsse`,
		"url: 'http://a', signature: {keys: [" + key + "]}":              "signature.kind: is missing",
		"url: 'http://a', signature: {kind: minisign}":                   "signature.keys: no key is given",
		"url: 'http://a', signature: {kind: minisign, keys: [x]}":        "key 1 is not a public key of minisign",
		"url: 'http://a', signature: {kind: dsse, keys: [" + key + "]}":  "key 1 is neither a PUBLIC KEY in PEM nor 32 bytes in base64",
		"url: 'http://a', signature: {kind: dsse, key: x}":               "sources[0].signature.key: unknown key",
		"url: 'http://a', signature: {}":                                 "sources[0].signature: is empty",
		"url: 'http://a', signature: minisign":                           `sources[0].signature: expected a map, not a string`,
		"url: 'http://a', signature.kind: minisign":                      "sources[0].signature.kind: unknown key",
		"url: 'oci://fleet:1'":                                           "does not begin with the host of a registry",
		"url: 'oci://r.example/Fleet:1'":                                 "invalid reference format",
		"url: 'oci://r.example/fleet:1', caFile: /x":                     "sources[0].caFile: is for http and https URLs only",
		"url: 'oci://r.example/fleet:1', headers: [{name: A, value: b}]": "sources[0].headers: is for http and https URLs only",
	} {
		t.Run(entry, func(t *testing.T) {
			dir := t.TempDir()
			testfiles.Write(t, filepath.Join(dir, "config.yaml"), "sources: [{name: a, "+entry+"}]\n")
			if _, err := daemontest.LoadIn(dir); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}

func TestTheExampleOfSigningMakesWhatIsAccepted(t *testing.T) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.pem")
	testfiles.Write(t, path, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	sign := func(body string, version string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "../../examples/signed/sign.sh", path, version)
		var problems bytes.Buffer
		cmd.Stdin, cmd.Stderr = strings.NewReader(body), &problems
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v (it needs openssl): %s", err, problems.String())
		}
		return string(out)
	}
	example, err := os.ReadFile("../../examples/signed/config.yml")
	if err != nil {
		t.Fatal(err)
	}
	pod := daemontest.PodYAML("signed", runtimetest.ScriptServe)
	web := newManifestServer(t, map[string]string{"/pods.dsse.json": sign(pod, "1")})
	config := strings.NewReplacer("https://fleet.example/pods.dsse.json", web.URL+"/pods.dsse.json", "KEY", base64.StdEncoding.EncodeToString(public)).Replace(string(example))
	d := newDaemon(t, config)
	d.Start()
	runs(d, "signed")
	web.body.Store(&map[string]string{"/pods.dsse.json": sign(daemontest.PodYAML("newer", runtimetest.ScriptServe), "2")})
	d.Again()
	runs(d, "newer")
	web.body.Store(&map[string]string{"/pods.dsse.json": sign(pod, "1")})
	d.Again()
	d.Shows("version 1 is older than version 2", "get", "sources")
}
