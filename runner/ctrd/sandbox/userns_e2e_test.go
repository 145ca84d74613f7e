//go:build e2e

package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"monopod/e2e/ctrdtest"
	"monopod/e2e/testimages"
	"monopod/runner/ctrd"
)

// oldRunc returns an OCI runtime that calls runc but reports no support for id-mapped mounts, and whether it was used.
func oldRunc(t *testing.T, w *ctrdtest.World) (path string, used func() bool) {
	t.Helper()
	path = filepath.Join(w.Dir, "old-runc")
	ctrdtest.Check(t, os.WriteFile(path, []byte("#!/bin/sh\n[ \"$1\" = features ] && echo '{\"linux\": {}}' && exit\n> "+path+".used\nexec runc \"$@\"\n"), 0o755))
	return path, func() bool { return ctrdtest.Exists(path + ".used") }
}

// allVolumes has each kind of volume in a user namespace.
const allVolumes = `
apiVersion: v1
kind: Pod
metadata: {name: mapped, labels: {a: b}}
spec:
  hostUsers: false
  restartPolicy: Never
  securityContext: {fsGroup: 3000}
  containers:
  - name: c
    image: ` + ctrdtest.TestImage + `
    command: [sh, -c, %q]
    volumeMounts:
    - {name: disk, mountPath: /v/disk}
    - {name: mem, mountPath: /v/mem}
    - {name: disk, mountPath: /v/sub, subPath: below}
    - {name: host, mountPath: /v/host}
    - {name: config, mountPath: /v/config}
    - {name: secret, mountPath: /v/secret}
    - {name: down, mountPath: /v/down}
    - {name: all, mountPath: /v/all}
    - {name: one, mountPath: /v/one}
    - {name: two, mountPath: /v/two}
    - {name: two, mountPath: /v/twosub, subPath: dir}
  volumes:
  - {name: disk, emptyDir: {}}
  - {name: mem, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: host, hostPath: {path: %s}}
  - {name: config, configMap: {name: c}}
  - {name: secret, secret: {secretName: s, defaultMode: 0400}}
  - {name: down, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
  - {name: all, projected: {sources: [{configMap: {name: c}}]}}
  - {name: one, image: {reference: example.com/one:1, pullPolicy: IfNotPresent}}
  - {name: two, image: {reference: example.com/two:1, pullPolicy: IfNotPresent}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {k: configured}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {k: hidden}
`

// TestVolumesInUserNamespaces: in each kind of volume files belong to whom they belong to without a user namespace. The
// usual runc is too old, so that the pod gets the one that came with monopod, while others keep the usual one.
func TestVolumesInUserNamespaces(t *testing.T) {
	for name, prepare := range map[string]func(*ctrdtest.World){
		"embedded containerd": func(*ctrdtest.World) {},
		"external containerd": func(w *ctrdtest.World) { ctrdtest.StartContainerd(t, w) },
	} {
		t.Run(name, func(t *testing.T) { testVolumesInUserNamespaces(t, prepare) })
	}
}

func testVolumesInUserNamespaces(t *testing.T, prepare func(*ctrdtest.World)) {
	w := ctrdtest.NewWorld(t)
	for _, dir := range []string{w.Dir, w.Run} { // ids of pods must be able to look for their files there
		ctrdtest.Check(t, os.Chmod(dir, 0o711))
	}
	one := testimages.FromFiles(t, []testimages.File{{Path: "file", Content: []byte("1\n"), Mode: 0o644}}, nil)
	more := testimages.FromFiles(t, []testimages.File{{Path: "dir", Mode: 0o755}, {Path: "dir/file", Content: []byte("2\n"), Mode: 0o600}}, nil)
	layers, err := more.Layers()
	ctrdtest.Check(t, err)
	two, err := mutate.AppendLayers(one, layers...)
	ctrdtest.Check(t, err)
	testimages.ArchiveOf(t, filepath.Join(w.Dir, "images", "one.tar"), one, "example.com/one:1")
	testimages.ArchiveOf(t, filepath.Join(w.Dir, "images", "two.tar"), two, "example.com/two:1")
	host := filepath.Join(w.Dir, "host")
	ctrdtest.Check(t, os.Mkdir(host, 0o755))
	prepare(w)
	old, used := oldRunc(t, w)
	a := w.OpenWith(t, func(c *ctrd.Config) { c.OCIRuntime, c.ShippedRuntime = old, ctrdtest.ShippedRunc(t) })
	defer a.End(t)
	const script = `set -e; exec 2>&1; set -- $(cat /proc/self/uid_map); echo map $1 $3; cd /v; for f in disk mem sub host; do echo new > $f/f; done; ` +
		`stat -L -c "%u:%g %n" disk disk/f mem mem/f sub/f host host/f config/k secret/k down/labels all/k one/file two/file two/dir/file twosub/file; ` +
		`cat config/k secret/k all/k two/dir/file; echo x > two/x || true; dd if=/dev/zero of=mem/big bs=1M count=2 2>/dev/null || echo full`
	const want = "map 0 65536 0:3000 disk 0:3000 disk/f 0:3000 mem 0:3000 mem/f 0:3000 sub/f 0:0 host 0:0 host/f 0:3000 config/k 0:3000 secret/k " +
		"0:3000 down/labels 0:3000 all/k 0:0 one/file 0:0 two/file 0:0 two/dir/file 0:0 twosub/file configured" + "hidden" + "configured" + "2 " +
		"sh: can't create two/x: Read-only file system full"
	text := fmt.Sprintf(allVolumes, script, host)
	manifest, documents, _ := strings.Cut(text, "---\n")
	got := a.Output(t, resolved(t, manifest, documents))
	if got = strings.Join(strings.Fields(got), " "); got != want {
		t.Errorf("the pod says\n%s\nwant\n%s", got, want)
	}
	if st, err := os.Stat(filepath.Join(host, "f")); err != nil || st.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the file on the host: %+v, %v", st, err)
	}
	if used() {
		t.Error("the usual runtime was used for a pod that it cannot run")
	}
	plain := ctrdtest.Stamped(t, "plain", w.Dir, true)
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, plain))
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, plain.Key()))
	if !used() {
		t.Error("the usual runtime was not used for a pod that it can run")
	}
}

// TestAUserNamespaceNeedsARuntime: without one the pod waits with the words of a kubelet.
func TestAUserNamespaceNeedsARuntime(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	old, _ := oldRunc(t, w)
	a := w.OpenWith(t, func(c *ctrd.Config) { c.OCIRuntime = old })
	defer a.End(t)
	pod := ctrdtest.Load(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: alone}\nspec:\n  hostUsers: false\n  containers: [{name: c, image: "+ctrdtest.TestImage+"}]\n")
	err := ctrdtest.StartPod(t.Context(), a, pod)
	if err == nil || !strings.Contains(err.Error(), "can't set `spec.hostUsers: false`, runtime does not support user namespaces: "+old+" has no id-mapped mounts") {
		t.Errorf("error is %v", err)
	}
}
