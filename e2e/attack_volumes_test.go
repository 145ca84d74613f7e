//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"monopod/e2e/testimages"
)

// TestAttackObjectFiles: pods mount many ConfigMaps of a megabyte, which the agent writes to memory that no limit of a pod includes. All of
// them together stay below objectFilesMemory, and the pods beyond it wait with that as the reason.
func TestAttackObjectFiles(t *testing.T) {
	const limit = 16 << 20
	a := newAttacked(t, "objectFilesMemory: 16Mi")
	a.put("big", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: big}\ndata: {f: "+strings.Repeat("x", 1000<<10)+"}\n")
	a.survives("large ConfigMaps in many pods", func() {
		for i := range 8 {
			mounts, volumes := "    resources: {limits: {memory: 16Mi}}\n    volumeMounts:", "  volumes:"
			for v := range 4 {
				mounts += fmt.Sprintf("\n    - {name: v%d, mountPath: /v%[1]d}", v)
				volumes += fmt.Sprintf("\n  - {name: v%d, configMap: {name: big}}", v)
			}
			name := fmt.Sprintf("hoard%d", i)
			a.put(name, sleeper(name, ":", mounts, volumes))
		}
		a.eventually("some pods run and the others wait", func() error {
			all, err := a.pods()
			run, wait := 0, 0
			for name, p := range all {
				switch {
				case !strings.HasPrefix(name, "hoard"):
				case isReady(p):
					run++
				case strings.Contains(brief(p), "objectFilesMemory"):
					wait++
				}
			}
			if err == nil && (run < 3 || run+wait < 8) {
				err = fmt.Errorf("%d run and %d wait", run, wait)
			}
			return err
		})
		var st unix.Statfs_t
		if err := unix.Statfs(filepath.Join(a.state, "secrets"), &st); err != nil || int64(st.Blocks-st.Bfree)*st.Bsize > limit || int64(st.Blocks)*st.Bsize > limit+32<<20 {
			t.Errorf("%d of %d KiB are used, %v", int64(st.Blocks-st.Bfree)*st.Bsize>>10, int64(st.Blocks)*st.Bsize>>10, err)
		}
	})
}

// TestAttackImageVolumes: a small image names a large directory as a volume many times. The copies stay below the limit of the pod, which
// says so, and nothing of them is left.
func TestAttackImageVolumes(t *testing.T) {
	in := newInstance(t)
	files := []testimages.File{{Path: "data", Mode: 0o755}, {Path: "data/zeros", Content: make([]byte, 8<<20), Mode: 0o644}}
	paths := map[string]struct{}{}
	for i := range 200 {
		files = append(files, testimages.File{Path: fmt.Sprintf("v%d", i), Link: "/data", Mode: 0o777})
		paths[fmt.Sprintf("/v%d", i)] = struct{}{}
	}
	img := testimages.Busybox(t, func(c *v1.Config) { c.Volumes = paths }, files...)
	testimages.ArchiveOf(t, filepath.Join(in.dir, "images", "amplified.tar"), img, "example.com/amplified:1")
	a := attack(in)
	text := strings.Replace(sleeper("hostile", ":", "    resources: {limits: {ephemeral-storage: 64Mi}}"), image, "example.com/amplified:1", 1)
	a.survives("an image with many large volumes", func() {
		a.put("hostile", text)
		a.settled("pod more ephemeral storage than the limit, which is 64Mi")
		a.drop("hostile")
		a.eventually("no copies are left", func() error {
			left, err := filepath.Glob(filepath.Join(a.dir, "root", "pods", "*", "image-volumes", "*", "*"))
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("%d copies", len(left))
			}
			return err
		})
	})
}
