package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
)

// pauseName is the image of what a kubelet starts first in each pod.
const pauseName = "monopod.dev/pause:1"

// kubelet is a kubelet without an API server, with a containerd for it alone.
type kubelet struct {
	files

	programs []*exec.Cmd
	logs     string
}

// startKubelet returns once containerd has the images; the kubelet may still be starting.
func startKubelet(ctx context.Context, b *bench) (subject, error) {
	dir, tools := filepath.Join(b.work, "kubelet"), filepath.Join(b.bin, "peers")
	k := &kubelet{files: files{dir: filepath.Join(dir, "manifests"), stamps: b.stamps}, logs: dir}
	for _, d := range []string{k.dir, filepath.Join(dir, "cni")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	socket := filepath.Join(b.state, "containerd.sock")
	for name, text := range map[string]string{
		"containerd.toml": fmt.Sprintf(`version = 3
root = %q
state = %q
[grpc]
address = %q
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = %q
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = [%q]
conf_dir = %q
`, filepath.Join(dir, "containerd"), filepath.Join(b.state, "containerd"), socket, pauseName, filepath.Join(b.bin, "cni"), filepath.Join(dir, "cni")),
		"cni/10-bench.conflist": `{"cniVersion": "1.0.0", "name": "bench", "plugins": [
{"type": "bridge", "bridge": "kubelet0", "isGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.213.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "` + b.state + `/ipam"}},
{"type": "portmap", "capabilities": {"portMappings": true}}]}
`,
		"kubelet.yaml": fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: %s
containerRuntimeEndpoint: unix://%s
podLogsDir: %s
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
enableServer: false
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
evictionHard: {memory.available: 10Mi}
imageGCHighThresholdPercent: 100
`, k.dir, socket, filepath.Join(dir, "pods")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	if err := k.program(filepath.Join(tools, "containerd"), "--config", filepath.Join(dir, "containerd.toml"), "--log-level", "warn"); err != nil {
		return nil, err
	}
	if err := load(ctx, socket, filepath.Join(b.images, "stamp.tar"), filepath.Join(tools, "pause.tar")); err != nil {
		return nil, errors.Join(err, errors.New(k.logTail()), k.stop())
	}
	if err := k.program(filepath.Join(tools, "kubelet"), "--config", filepath.Join(dir, "kubelet.yaml"), "--root-dir", filepath.Join(dir, "root"), "--v", "0"); err != nil {
		return nil, errors.Join(err, k.stop())
	}
	return k, nil
}

// program starts a program, with PATH for the shim beside it.
func (k *kubelet) program(path string, args ...string) error {
	log, err := os.Create(filepath.Join(k.logs, filepath.Base(path)+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command(path, args...)
	c.Env = append(os.Environ(), "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH"))
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		return err
	}
	k.programs = append(k.programs, c)
	return nil
}

// load imports images, once containerd answers.
func load(ctx context.Context, socket string, archives ...string) error {
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(ctx, "k8s.io"), time.Minute)
	defer cancel()
	c, err := client.New(socket, client.WithTimeout(time.Minute))
	if err != nil {
		return err
	}
	defer c.Close()
	for _, archive := range archives {
		f, err := os.Open(archive)
		if err != nil {
			return err
		}
		images, err := c.Import(ctx, f)
		_ = f.Close() // it was only read
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
		for _, image := range images {
			if err := client.NewImage(c, image).Unpack(ctx, "overlayfs"); err != nil {
				return fmt.Errorf("%s: %w", image.Name, err)
			}
		}
	}
	return nil
}

// stop implements subject. Pods end with the namespaces; their cgroups are the machine's.
func (k *kubelet) stop() error {
	k.clear()
	err := gone("")
	for _, c := range slices.Backward(k.programs) {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait() // how it ends is not measured
	}
	return err
}

// logTail implements subject.
func (k *kubelet) logTail() string {
	return tail(filepath.Join(k.logs, "containerd.log")) + tail(filepath.Join(k.logs, "kubelet.log"))
}
