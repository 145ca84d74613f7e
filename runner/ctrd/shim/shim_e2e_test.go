//go:build e2e

package shim_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"

	"monopod/e2e/testbed"
	"monopod/e2e/testimages"
	"monopod/runner/ctrd/shim"
)

const config = `version = 3
root = "%[1]s/root"
state = "%[1]s/state"
[grpc]
address = "%[1]s/c.sock"
[plugins."io.containerd.shim.v1.manager"]
socket_dir = "%[1]s/s"
`

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// daemon runs an ordinary containerd in dir and returns a client and a function that kills it.
func daemon(t *testing.T, dir string) (*client.Client, func()) {
	t.Helper()
	bin, err := filepath.Abs("../../../bin/tools/containerd")
	check(t, err)
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("%v; run `make tools` first", err)
	}
	conf := filepath.Join(dir, "config.toml")
	check(t, os.WriteFile(conf, fmt.Appendf(nil, config, dir), 0o600))
	cmd := exec.Command(bin, "--config", conf, "--log-level", "warn")
	log, err := os.Create(filepath.Join(dir, "containerd.log"))
	check(t, err)
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	check(t, cmd.Start())
	c, err := client.New(filepath.Join(dir, "c.sock"), client.WithDefaultNamespace("test"), client.WithTimeout(20*time.Second))
	for end := time.Now().Add(testbed.Patience()); err == nil; time.Sleep(10 * time.Millisecond) {
		if _, err = c.Version(t.Context()); err == nil || time.Now().After(end) {
			break
		}
		err = nil // it is not up yet
	}
	kill := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if c != nil {
			_ = c.Close()
		}
	}
	if err != nil {
		kill()
		out, _ := os.ReadFile(log.Name())
		t.Fatalf("%v\n%s", err, out)
	}
	return c, kill
}

// TestOrdinaryContainerdRunsTheShimByItsPath: the shim works under an external containerd, too, even if that is killed and the container
// exits meanwhile.
func TestOrdinaryContainerdRunsTheShimByItsPath(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs containers")
	}
	dir, err := os.MkdirTemp("/run", "mp-shim-") // t.TempDir is too long for sockets
	check(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			_ = exec.Command("runc", "--root", dir+"/runc/test", "delete", "--force", "c1").Run()
			_ = exec.Command("umount", dir+"/state/io.containerd.runtime.v2.task/test/c1/rootfs").Run()
		}
		check(t, os.RemoveAll(dir))
	})
	bin := filepath.Join(dir, shim.BinaryName)
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "no_grpc", "-o", bin, "monopod/cmd/"+shim.BinaryName)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx := namespaces.WithNamespace(t.Context(), "test")
	c, kill := daemon(t, dir)
	defer func() { kill() }()
	tar := filepath.Join(dir, "i.tar")
	testimages.Archive(t, tar, "example.com/i:1")
	f, err := os.Open(tar)
	check(t, err)
	defer func() { _ = f.Close() }()
	_, err = c.Import(ctx, f, client.WithImageRefTranslator(archive.AddRefPrefix("x")))
	check(t, err)
	img, err := c.GetImage(ctx, "example.com/i:1")
	check(t, err)
	check(t, img.Unpack(ctx, "overlayfs"))

	// An OCI runtime that records its arguments.
	program, calls := filepath.Join(dir, "bin", "runc"), filepath.Join(dir, "calls")
	check(t, os.Mkdir(filepath.Dir(program), 0o700))
	check(t, os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\necho \"$*\" >>%s\nexec runc \"$@\"\n", calls), 0o700))
	record, flag := filepath.Join(dir, "exits", "c1"), filepath.Join(dir, "flag")
	check(t, os.Mkdir(flag, 0o700))
	cont, err := c.NewContainer(ctx, "c1", client.WithSnapshotter("overlayfs"), client.WithNewSnapshot("c1", img),
		client.WithRuntime(bin, &options.Options{Root: filepath.Join(dir, "runc"), BinaryName: program}),
		client.WithNewSpec(oci.WithImageConfig(img), oci.WithProcessArgs("sh", "-c", "until [ -e /tmp/go ]; do sleep 0.05; done; exit 5"),
			oci.WithAnnotations(map[string]string{shim.AnnotationExitFile: record, shim.AnnotationDelete: shim.DeleteInProcess}),
			oci.WithMounts([]ociMount{{Type: "bind", Source: flag, Destination: "/tmp", Options: []string{"rbind"}}})))
	check(t, err)
	task, err := cont.NewTask(ctx, cio.NullIO)
	check(t, err)
	check(t, task.Start(ctx))
	info, err := cont.Info(ctx)
	check(t, err)
	if info.Runtime.Name != bin {
		t.Errorf("runtime name %q", info.Runtime.Name)
	}

	kill()
	check(t, os.WriteFile(filepath.Join(flag, "go"), nil, 0o600))
	for end := time.Now().Add(testbed.Patience()); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(record); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no exit record")
		}
	}
	c, kill = daemon(t, dir)
	cont, err = c.LoadContainer(ctx, "c1")
	check(t, err)
	task, err = cont.Task(ctx, nil)
	check(t, err)
	if st, err := task.Status(ctx); err != nil || st.Status != client.Stopped || st.ExitStatus != 5 {
		t.Errorf("status %+v, %v", st, err)
	}
	if r, err := shim.ReadExitRecord(record); err != nil || r.ExitCode != 5 {
		t.Errorf("record %+v, %v", r, err)
	}
	_, err = task.Delete(context.WithoutCancel(ctx))
	check(t, err)
	check(t, cont.Delete(context.WithoutCancel(ctx), client.WithSnapshotCleanup))
	if b, err := os.ReadFile(calls); err != nil || !strings.Contains(string(b), " create ") || strings.Contains(string(b), " delete ") {
		t.Errorf("runc was called, though the shim can delete a container: %v\n%s", err, b)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "runc", "test")); err != nil || len(left) > 0 {
		t.Errorf("left by runc: %v, %v", left, err)
	}
}
