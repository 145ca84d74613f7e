//go:build e2e

package e2e

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"aead.dev/minisign"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"monopod/e2e/testimages"
)

func TestASignedSourceRunsNothingElse(t *testing.T) {
	public, key, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, foreign, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	site := newSite(t)
	serves := func(body string, signature []byte) {
		site.answers(func(rw http.ResponseWriter, r *http.Request) {
			switch {
			case !strings.HasSuffix(r.URL.Path, ".minisig"):
				_, _ = io.WriteString(rw, body)
			case signature == nil:
				http.NotFound(rw, r)
			default:
				_, _ = rw.Write(signature)
			}
		})
	}
	sign := func(key minisign.PrivateKey, body string, version int) []byte {
		return minisign.SignWithComments(key, []byte(body), fmt.Sprintf("version:%d", version), "of a test")
	}
	one, two, three := sleeper("stays", ":"), sleeper("two", ":"), sleeper("stays", ":")+"---\n"+sleeper("three", ":")
	serves(one, sign(key, one, 2))
	dir := t.TempDir()
	ca, keys := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "fleet.pub")
	site.authority(ca)
	if err := os.WriteFile(keys, []byte("untrusted comment: of the fleet\n"+public.String()+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	in := newInstance(t, fmt.Sprintf("sources: [{name: fleet, url: %q, caFile: %s, period: 1s, signature: {kind: minisign, keyFiles: [%s]}}]", "https://"+site.address+"/pods.yaml", ca, keys))
	t.Cleanup(func() { serves("# nothing\n", sign(key, "# nothing\n", 99)) }) // before the cleanup of the instance
	in.start()
	before := in.ready("stays")
	for _, f := range []struct {
		name      string
		signature []byte
		report    string
	}{
		{"none", nil, "there is no signature"},
		{"by somebody else", sign(foreign, two, 3), "not a key of the source"},
		{"for something else", sign(key, one, 3), "does not match this answer"},
		{"older", sign(key, two, 1), "version 1 is older than version 2"},
	} {
		serves(two, f.signature)
		in.reports(f.report)
	}

	// After a power cut and with a damaged copy, the old set is still refused as outdated; only a newer one runs again.
	if err := in.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(in.dir, "root", "sources", "fleet", "answer"), 100); err != nil {
		t.Fatal(err)
	}
	serves(two, sign(key, two, 1))
	in.start()
	in.reports("version 1 is older than version 2")
	after := in.ready("stays")
	if before.UID != after.UID || containerID(before, "c") != containerID(after, "c") {
		t.Errorf("the pod was touched: %s", brief(after))
	}
	serves(three, sign(key, three, 3))
	in.ready("three")
	if after = in.ready("stays"); containerID(before, "c") != containerID(after, "c") {
		t.Errorf("the pod was touched: %s", brief(after))
	}
	if all, err := in.pods(); err != nil || len(all) != 2 {
		t.Errorf("%d pods, %v", len(all), err)
	}
	serves("# nothing\n", sign(key, "# nothing\n", 4))
	in.gone("stays")
	in.gone("three")
}

func TestPodsComeFromARegistry(t *testing.T) {
	host := testimages.Registry(t)
	ref := host + "/fleet/pods:stable"
	push := func(files ...string) {
		t.Helper()
		img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
		for _, f := range files {
			var err error
			if img, err = mutate.AppendLayers(img, static.NewLayer([]byte(f), "application/yaml")); err != nil {
				t.Fatal(err)
			}
		}
		testimages.Push(t, ref, img)
	}
	push(sleeper("stays", ":"), sleeper("old", ":"))
	in := newInstance(t, fmt.Sprintf("sources: [{name: fleet, url: %q, period: 1s}]", "oci://"+ref))
	t.Cleanup(func() { push("# nothing any more\n") })
	in.start()
	before := in.ready("stays")
	in.ready("old")
	push("no: manifest\n")
	in.reports("Refused")
	push(sleeper("stays", ":"), sleeper("new", ":"))
	in.ready("new")
	in.gone("old")
	after := in.ready("stays")
	if before.UID != after.UID || containerID(before, "c") != containerID(after, "c") {
		t.Errorf("the pod was touched: %s", brief(after))
	}
	if said := in.reports("Accepted"); !strings.Contains(said, "oci://"+ref) {
		t.Errorf("get sources:\n%s", said)
	}
}
