//go:build e2e

package e2e

import (
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"monopod/e2e/testimages"
)

// TestImagesOfAMachine pulls, refuses and garbage-collects images with the whole agent. Its disk counts as full all the time.
func TestImagesOfAMachine(t *testing.T) {
	t.Parallel()
	reg := testimages.Registry(t)
	for _, name := range []string{"spare", "wanted", "later"} {
		testimages.Push(t, reg+"/"+name+":1", testimages.Busybox(t, func(c *v1.Config) { c.Env = []string{"NAME=" + name} }))
	}
	in := newInstance(t, "imageGCHighThresholdPercent: 1", "imageGCLowThresholdPercent: 0", "imageMinimumGCAge: 1s",
		"imagePolicy: [{match: "+reg+"/forbidden, action: deny}, {match: '*'}]",
		"registryHostsDirs: [certs.d]", "imageCredentialProviderConfig: providers/config.yaml")
	reg2 := newPrivateRegistry(t, "somebody", "a secret")
	in.provider(reg2.address, "somebody", "a secret")
	in.put("web", strings.ReplaceAll(sleeper("web", "echo up"), image, reg+"/wanted:1"))
	in.put("bad", strings.ReplaceAll(sleeper("bad", "echo up"), image, reg+"/forbidden/x:1"))
	in.put("cron", fmt.Sprintf("apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: cron}\nspec:\n  schedule: \"0 3 1 1 *\"\n  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: %q}]}}}}\n", reg+"/later:1"))
	in.start()
	in.ready("web")
	if out, err := in.run("pull", reg+"/spare:1", reg+"/later:1"); err != nil || !strings.Contains(out, reg+"/spare:1: pulled sha256:") {
		t.Fatalf("pull: %v\n%s", err, out)
	}
	if _, err := in.run("pull", reg+"/forbidden/x:1"); err == nil || !strings.Contains(err.Error(), "ImageNotAllowed") {
		t.Errorf("what is forbidden is pulled: %v", err)
	}
	in.eventually("why says that the image is not allowed", func() error {
		if out, err := in.run("why", "bad"); err != nil || !strings.Contains(out, "imagePolicy does not allow image") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	t.Run("private", func(t *testing.T) { in.pullsFromPrivate(t, reg2) })
	t.Run("silent", in.leavesASilentPlugin)
	t.Run("terminal", func(t *testing.T) {
		p := in.inTerminal(t, "pull", reg+"/wanted:1", reg+"/later:1")
		p.ends(0)
		in.eventually("the terminal has a line for each image", func() error {
			text := p.out.String()
			if !strings.Contains(text, "["+strings.Repeat(" ", 30)+"] "+reg+"/") || strings.Count(text, "done   "+reg+"/") != 2 || !strings.Contains(text, "\x1b[1A") {
				return fmt.Errorf("%q", text)
			}
			return nil
		})
	})
	var list string
	in.eventually("what nobody needs is gone", func() error {
		out, err := in.run("images", "-o", "wide")
		if err != nil || strings.Contains(out, reg+"/spare:1") {
			return fmt.Errorf("%w: %s", err, out)
		}
		list = out
		return nil
	})
	for _, want := range []string{reg + "/wanted:1", reg + "/later:1", image, "in use by default/web", "manifest of CronJob default/cron", "preload " + filepath.Join(in.dir, "images", "busybox.tar")} {
		if !strings.Contains(list, want) {
			t.Errorf("%q is not in\n%s", want, list)
		}
	}
	in.eventually("the disk is said to be full", func() error {
		if out, err := in.run("events"); err != nil || !strings.Contains(out, "FreeDiskSpaceFailed") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// privateRegistry requires TLS with a CA of its own, and credentials.
type privateRegistry struct {
	address string
	ca      []byte
}

func newPrivateRegistry(t *testing.T, user, password string) *privateRegistry {
	t.Helper()
	all := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0)))
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		all.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	reg := &privateRegistry{address: strings.TrimPrefix(srv.URL, "https://"), ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})}
	testimages.Push(t, reg.address+"/app:1", testimages.Busybox(t, nil), remote.WithTransport(srv.Client().Transport), remote.WithAuth(&authn.Basic{Username: user, Password: password}))
	return reg
}

// provider is a plug-in that provides credentials: the name comes from its environment, the password from its arguments.
func (in *instance) provider(address, user, password string) {
	in.t.Helper()
	dir := filepath.Join(in.dir, "providers")
	err := errors.Join(os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "config.yaml"), fmt.Appendf(nil, `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: who-knows
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: [%q]
  defaultCacheDuration: 1h
  args: [--password, %q]
  env: [{name: REGISTRY_USER, value: %q}]
`, address, password, user), 0o600),
		os.WriteFile(filepath.Join(dir, "who-knows"), fmt.Appendf(nil, `#!/bin/sh
grep -q '"image":"%[1]s/app"' && [ "$1" = --password ] || exit 1
echo '{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse", "cacheKeyType": "Registry", "auth": {"%[1]s": {"username": "'"$REGISTRY_USER"'", "password": "'"$2"'"}}}'
`, address), 0o755))
	if err != nil {
		in.t.Fatal(err)
	}
}

// pullsFromPrivate: the CA certificate of a registry is in certs.d and is read at each pull; the credentials come from a plug-in.
func (in *instance) pullsFromPrivate(t *testing.T, reg *privateRegistry) {
	if _, err := in.run("pull", reg.address+"/app:1"); err == nil || !strings.Contains(err.Error(), "ErrImagePull") {
		t.Errorf("without its authority: %v", err)
	}
	dir := filepath.Join(in.dir, "certs.d", reg.address)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "ca.pem"), reg.ca, 0o600),
		os.WriteFile(filepath.Join(dir, "hosts.toml"), fmt.Appendf(nil, "server = \"https://%s\"\nca = \"ca.pem\"\n", reg.address), 0o600)); err != nil {
		t.Fatal(err)
	}
	in.put("private", strings.ReplaceAll(sleeper("private", "echo up"), image, reg.address+"/app:1"))
	in.ready("private")
	if err := os.Remove(filepath.Join(in.dir, "providers", "who-knows")); err != nil {
		t.Fatal(err)
	}
	if out, err := in.run("pull", reg.address+"/app:1"); err != nil { // what the plug-in has said counts for an hour
		t.Errorf("%v\n%s", err, out)
	}
	// A mistake in the configuration of plug-ins, or a missing one, disables only their credentials.
	if err := in.signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	file := filepath.Join(in.dir, "providers", "config.yaml")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(good, "  matchImage: [other]\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	in.start()
	in.ready("private")
	mistake := file + `: error unmarshaling JSON: while decoding JSON: json: unknown field "matchImage"`
	if _, err := in.run("pull", reg.address+"/app:1"); err == nil || !strings.Contains(err.Error(), mistake) {
		t.Errorf("with a mistake: %v", err)
	}
	if out, err := in.run("status"); err != nil || !strings.Contains(out, mistake) {
		t.Errorf("status does not tell the mistake: %v\n%s", err, out)
	}
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := in.run("pull", reg.address+"/app:1"); err == nil || !strings.Contains(err.Error(), "who-knows: no such file") {
		t.Errorf("without the plug-in: %v", err)
	}
}

// leavesASilentPlugin: a pod that waits for the answer of a plug-in to another pod leaves nothing behind when it is deleted, nor does the
// pod that caused the request.
func (in *instance) leavesASilentPlugin(t *testing.T) {
	dir := filepath.Join(in.dir, "providers")
	asked := filepath.Join(dir, "asked")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(`apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- {name: silent, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: [silent.example], defaultCacheDuration: 1h}
`), 0o600), os.WriteFile(filepath.Join(dir, "silent"), fmt.Appendf(nil, "#!/bin/sh\necho $$ >>%s\nexec sleep 1000\n", asked), 0o755)); err != nil {
		t.Fatal(err)
	}
	waits := func(name string, want bool) {
		within := patience
		if !want {
			within = 45 * time.Second // less than a plug-in has to answer
		}
		in.eventuallyUntil(time.Now().Add(within), fmt.Sprintf("%s waits for its image: %t", name, want), func() error {
			out, err := in.run("images")
			if err != nil || strings.Contains(out, "silent.example/"+name+":1") != want {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	put := func(name string) {
		in.put(name, strings.ReplaceAll(sleeper(name, "echo up"), image, "silent.example/"+name+":1"))
		waits(name, true)
	}
	pids := func() []string {
		b, _ := os.ReadFile(asked)
		return strings.Fields(string(b))
	}
	alive := func(pid string) bool {
		b, err := os.ReadFile("/proc/" + pid + "/cmdline")
		return err == nil && strings.HasPrefix(string(b), "sleep")
	}
	put("first")
	in.eventually("the plug-in is asked", func() error {
		if all := pids(); len(all) != 1 || !alive(all[0]) {
			return fmt.Errorf("%q", all)
		}
		return nil
	})
	put("second")
	in.drop("second")
	waits("second", false)
	in.gone("second")
	if all := pids(); len(all) != 1 {
		t.Errorf("the plug-in was asked by %q at once", all)
	}
	in.drop("first")
	waits("first", false)
	in.gone("first")
	for _, pid := range pids() {
		if alive(pid) {
			t.Errorf("plug-in %s goes on for nobody", pid)
		}
	}
}
