//go:build e2e

package e2e

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/testimages"
	"monopod/internal/cause"
)

// daemon is an external containerd, as a user might already have one.
type daemon struct {
	t      *testing.T
	dir    string
	socket string
	cmd    *exec.Cmd
	log    *syncBuffer
	dead   bool
}

func startContainerd(t *testing.T) *daemon {
	t.Helper()
	return startContainerdIn(t, filepath.Join(t.TempDir(), "root"))
}

// startContainerdIn is startContainerd with a root directory.
func startContainerdIn(t *testing.T, root string) *daemon {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs containers")
	}
	dir, err := os.MkdirTemp("/run", "ctrd-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, dir: dir, socket: filepath.Join(dir, "c.sock"), log: &syncBuffer{}}
	config := fmt.Sprintf(`version = 3
root = %q
state = %q
disabled_plugins = ["io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images", "io.containerd.grpc.v1.cri"]
[grpc]
  address = %q
[ttrpc]
  address = %q
`, root, filepath.Join(dir, "state"), d.socket, d.socket+".ttrpc")
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	d.start()
	t.Cleanup(func() {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		_ = d.cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	return d
}

func (d *daemon) start() {
	d.t.Helper()
	d.cmd = exec.Command(filepath.Join(binaries(d.t), "tools", "containerd"), "--config", filepath.Join(d.dir, "config.toml"))
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.dead = false
	w := &instance{t: d.t, log: d.log}
	w.eventually("containerd listens", func() error {
		c, err := net.Dial("unix", d.socket)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}

func (d *daemon) kill9() {
	d.t.Helper()
	if err := d.cmd.Process.Kill(); err != nil {
		d.t.Fatal(err)
	}
	_ = d.cmd.Wait()
	d.dead = true
}

// state is the directory of its shims.
func (d *daemon) state() string { return filepath.Join(d.dir, "state") }

// revive starts it again if a test failed while it was down: the instance needs it for cleanup.
func (d *daemon) revive() {
	if d.dead {
		d.start()
	}
}

func TestPodsOutliveContainerd(t *testing.T) {
	d := startContainerd(t)
	in := newInstance(t, "containerRuntimeEndpoint: unix://"+d.socket, "enableProfilingHandler: true")
	t.Cleanup(d.revive)
	in.start()
	in.eventually("the image is imported", func() error {
		if out, err := in.run("images"); err != nil || !strings.Contains(out, image) {
			return fmt.Errorf("%s %w", out, err)
		}
		return nil
	})
	in.eventually("of the streams to containerd only that of its events stays open", func() error {
		if n := strings.Count(in.curl("/debug/pprof/goroutine?debug=2"), "\ngoogle.golang.org/grpc.newClientStreamWithParams"); n != 1 {
			return fmt.Errorf("%d are open", n)
		}
		return nil
	})
	for _, name := range []string{"one", "two"} {
		in.put(name, sleeper(name, "echo start"))
	}
	untouched := in.untouched("one", "two")
	in.eventually("monopod says that all is fine", in.fine)
	d.kill9()
	in.explains("one", cause.RuntimeDown, "now the runtime does not respond", d.socket)
	in.put("three", sleeper("three", "echo start"))
	in.put("two", strings.Replace(sleeper("two", "echo start"), "app: two", "app: two, edited: while-it-is-away", 1))
	in.eventually("it is tried to observe what was edited", func() error {
		if !regexp.MustCompile(`pod=default/two.*observe: `).MatchString(in.log.String()) {
			return errors.New("the log does not say so")
		}
		return nil
	})
	d.start()
	in.ready("three")
	in.pod("two", "is as edited", func(p corev1.Pod) bool { return p.Labels["edited"] != "" })
	in.eventually("monopod says that all is fine again", in.fine)
	untouched("with containerd again")
	in.drop("one")
	in.gone("one")
}

// TestUninstallLeavesAContainerdToOthers: records of other clients stay in it, and so does everything of monopod that another instance may
// need.
func TestUninstallLeavesAContainerdToOthers(t *testing.T) {
	d := startContainerd(t)
	c, err := client.New(d.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := namespaces.WithNamespace(t.Context(), "others")
	blob := []byte("of others")
	desc := ocispec.Descriptor{MediaType: "text/plain", Digest: digest.FromBytes(blob), Size: int64(len(blob))}
	if _, err := c.ImageService().Create(ctx, images.Image{Name: "theirs", Target: desc}); err != nil {
		t.Fatal(err)
	}
	if err := content.WriteBlob(ctx, c.ContentStore(), "theirs", bytes.NewReader(blob), desc); err != nil {
		t.Fatal(err)
	}
	endpoint := "containerRuntimeEndpoint: unix://" + d.socket
	first, second := newInstance(t, endpoint), newInstance(t, endpoint)
	first.start()
	second.start()
	first.put("first", sleeper("first", ":"))
	second.put("second", sleeper("second", ":"))
	first.ready("first")
	untouched := second.untouched("second")
	uninstall := func(in *instance) (string, error) {
		out, err := exec.Command(filepath.Join(in.bin, "monopod-client"), "uninstall", "--yes", "--config", in.config).CombinedOutput()
		<-in.exited //nolint:errcheck // it was told to end
		in.cmd = nil
		return string(out), err
	}
	if out, err := uninstall(first); err == nil || !strings.Contains(out, "containerd has 1 containers in namespace monopod that are not of this instance") {
		t.Errorf("beside another instance: %v: %s", err, out)
	}
	untouched("while the other instance is uninstalled")
	if out, err := uninstall(second); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	all, err := c.NamespaceService().List(t.Context())
	if err != nil || !slices.Equal(all, []string{"others"}) {
		t.Errorf("containerd has the namespaces %v, %v", all, err)
	}
	if got, err := content.ReadBlob(ctx, c.ContentStore(), desc); err != nil || !bytes.Equal(got, blob) {
		t.Errorf("what others have there: %q, %v", got, err)
	}
	if _, err := c.ImageService().Get(ctx, "theirs"); err != nil {
		t.Error(err)
	}
}

func TestTheSecondSignalEndsTheAgentAtOnce(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("p", sleeper("p", "echo start"))
	before := in.ready("p")
	pid := in.cmd.Process.Pid
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(pid, syscall.SIGTERM)
	select {
	case <-in.exited: //nolint:errcheck // a second signal ends it with whatever code
	case <-time.After(5 * time.Second):
		t.Fatal("still there after two signals")
	}
	in.cmd = nil
	in.start()
	if after := in.ready("p"); containerID(after, "c") != containerID(before, "c") {
		t.Error("the pod was restarted")
	}
}

func TestImagesComeFromRegistriesWithAndWithoutCredentials(t *testing.T) {
	open, closed := testimages.Registry(t), testimages.AuthRegistry(t, "someone", "secret")
	public, private := open+"/lib/busybox:2", closed+"/lib/private:2"
	testimages.Push(t, public, testimages.Busybox(t, nil))
	testimages.Push(t, private, testimages.Busybox(t, nil), remote.WithAuth(&authn.Basic{Username: "someone", Password: "secret"}))
	auth := filepath.Join(t.TempDir(), "auth.json")
	in := newInstance(t, "registryConfig: "+auth)
	in.start()
	in.put("public", strings.Replace(sleeper("public", "echo"), image, public, 1))
	in.ready("public")
	in.put("private", strings.Replace(sleeper("private", "echo"), image, private, 1))
	p := in.pod("private", "cannot be pulled", func(p corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && strings.Contains(s[0].State.Waiting.Reason, "Pull")
	})
	if msg := p.Status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(msg, "authorization failed") {
		t.Errorf("the message does not say why: %s", msg)
	}
	token := base64.StdEncoding.EncodeToString([]byte("someone:secret"))
	in.write(auth, fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, closed, token))
	in.ready("private")
}

// mostBundle is the limit of the size of the bundle: machines download it over slow networks.
const mostBundle = 21_000_000

func TestTheBundleNeedsNothingButIptables(t *testing.T) {
	unpacked := t.TempDir()
	t.Setenv("MONOPOD_BUNDLE_DIR", unpacked)
	in := newInstance(t)
	bundle, err := filepath.Abs("../bin/monopod-bundle")
	if err != nil {
		t.Fatal(err)
	}
	if file, err := os.Stat(bundle); err != nil || file.Size() > mostBundle {
		t.Errorf("the bundle is %+v, %v; the limit is %d bytes", file, err, mostBundle)
	}
	alone := t.TempDir()
	in.copyFile(bundle, filepath.Join(alone, "monopod"))
	if err := os.Chmod(filepath.Join(alone, "monopod"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("monopod", filepath.Join(alone, "monopod-client")); err != nil {
		t.Fatal(err)
	}
	in.bin = alone
	path := filepath.Join(alone, "path")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"iptables", "iptables-restore", "iptables-save", "ip6tables", "ip6tables-restore", "ip6tables-save", "nft"} {
		if found, err := exec.LookPath(tool); err == nil {
			if err := os.Symlink(found, filepath.Join(path, tool)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", path)
	in.start()
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", in.cmd.Process.Pid)); err != nil || !strings.HasPrefix(exe, unpacked) {
		t.Errorf("the agent runs from %s, %v: not from below %s, and all of the archive is in its memory", exe, err, unpacked)
	}
	in.put("web", sleeper("web", "echo", fmt.Sprintf("    ports: [{containerPort: 80, hostPort: %d}]", ports.Take(t))))
	in.ready("web")
	info, err := os.Stat(bundle)
	if err != nil || info.Size() > 35<<20 {
		t.Errorf("the bundle has %d bytes, more than 35 MiB (%v)", info.Size(), err)
	}
}
