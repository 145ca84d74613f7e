package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/payload"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/shim"
	"monopod/runner/spec"
	"monopod/runner/spec/volumeplan"
)

// limitedSecrets returns Secrets with a limit, on a directory instead of a tmpfs.
func limitedSecrets(t *testing.T, limit int64) *Secrets {
	t.Helper()
	r := &Secrets{
		Dirs: layout.Dirs{State: t.TempDir()}, Index: record.NewIndex(), Facts: func() spec.Host { return spec.Host{} },
		Limit: limit, taken: func(dir string) (int64, error) { return held(dir), nil }, secretsMounted: true,
	}
	for _, dir := range []string{r.Dirs.FilesDir(""), filepath.Dir(r.Dirs.HiddenFile("x"))} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func filesOf(bytes int) map[string]payload.File {
	return map[string]payload.File{"f": {Data: make([]byte, bytes), Mode: 0o644}}
}

// configured returns a pod with a volume of a ConfigMap of some bytes, and what it references.
func configured(name string, bytes int) (*corev1.Pod, *manifests.Refs, volumeplan.Plan) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	source := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}}}
	refs := &manifests.Refs{ConfigMaps: map[string]*corev1.ConfigMap{"m": {Data: map[string]string{"f": strings.Repeat("x", bytes)}}}}
	return pod, refs, volumeplan.Plan{Name: "v", Files: &source}
}

// A pod with a memory limit of 16Mi may mount any number of ConfigMaps of a megabyte: the agent writes them, so its limit does not hold.
func TestObjectsOfAllPodsAreLimited(t *testing.T) {
	const limit = 1 << 20
	r := limitedSecrets(t, limit)
	written := 0
	for i := range 8 {
		dir := filepath.Join(r.Dirs.FilesDir(fmt.Sprint("pod", i)), "v")
		err := r.write(dir, filesOf(300<<10), nil)
		if err == nil {
			written++
			continue
		}
		if c := cause.Of(err); !errors.Is(err, errNoRoom) || c.Kind != cause.Mount || c.Fault != cause.NoRoom || !strings.Contains(err.Error(), "objectFilesMemory is 1Mi") {
			t.Errorf("%+v of %v", c, err)
		}
		if payload.Written(dir) {
			t.Errorf("pod %d is refused, and has its files", i)
		}
	}
	if written != 3 || held(r.Dirs.SecretsDir()) > limit {
		t.Errorf("%d pods have files, of %d bytes together", written, held(r.Dirs.SecretsDir()))
	}
	if err := os.RemoveAll(r.Dirs.FilesDir("pod0")); err != nil {
		t.Fatal(err)
	}
	if err := r.write(filepath.Join(r.Dirs.FilesDir("pod7"), "v"), filesOf(300<<10), nil); err != nil {
		t.Errorf("after another pod is gone: %v", err)
	}
}

// An upgrade, or a lower limit, finds pods that already have more than the limit.
func TestPodsBeyondTheLimitKeepTheirObjects(t *testing.T) {
	r := limitedSecrets(t, 0)
	pod, refs, plan := configured("web", 200<<10)
	dir, err := r.prepareFiles(pod, refs, plan)
	if err != nil {
		t.Fatal(err)
	}
	r.Limit = 100 << 10
	size := func() int { data, _ := os.ReadFile(filepath.Join(dir, "f")); return len(data) }
	for _, tt := range []struct {
		name        string
		bytes, want int
		synced      bool
	}{
		{"the same", 200 << 10, 200 << 10, true},
		{"more", 300 << 10, 200 << 10, false},
		{"less", 150 << 10, 150 << 10, true},
		{"as much as before", 200 << 10, 150 << 10, false},
	} {
		_, refs, _ := configured("web", tt.bytes)
		if again, err := r.prepareFiles(pod, refs, plan); err != nil || again != dir {
			t.Errorf("%s: a container could not be restarted: %v", tt.name, err)
		}
		if err := r.writeVolume(pod, refs, plan, dir); (err == nil) != tt.synced {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got := size(); got != tt.want {
			t.Errorf("%s: %d bytes, want %d", tt.name, got, tt.want)
		}
	}
	other, refs, plan := configured("other", 1)
	if _, err := r.prepareFiles(other, refs, plan); !errors.Is(err, errNoRoom) {
		t.Errorf("a new pod: %v", err)
	}
}

func TestAnEditedPodIsCheckedForRoom(t *testing.T) {
	r := limitedSecrets(t, 500<<10)
	key := manifests.Key{Namespace: "ns", Name: "web"}
	r.Index.PutSandbox(&record.Sandbox{ID: "s", Meta: record.SandboxMeta{Key: key, UID: "uid", State: record.Active}})
	if err := r.write(filepath.Join(r.Dirs.FilesDir("uid"), "v"), filesOf(300<<10), nil); err != nil {
		t.Fatal(err)
	}
	for bytes, fits := range map[int]bool{300 << 10: true, 400 << 10: true, 600 << 10: false} {
		if err := r.checkRoom(key, charge(filesOf(bytes))); (err == nil) != fits {
			t.Errorf("%d KiB in place of 300: %v", bytes>>10, err)
		}
	}
	if err := r.checkRoom(manifests.Key{Namespace: "ns", Name: "new"}, charge(filesOf(300<<10))); !errors.Is(err, errNoRoom) {
		t.Errorf("another pod: %v", err)
	}
}

// Variables from Secrets are in memory too. A restarted container needs no room, because its earlier instance has it.
func TestHiddenVariablesAreLimited(t *testing.T) {
	r := limitedSecrets(t, 300<<10)
	instance := func(id, name string) *record.Container {
		return &record.Container{ID: id, Meta: record.ContainerMeta{UID: "uid", Name: name}}
	}
	long := shim.HiddenProcess{Env: []string{"A=" + strings.Repeat("x", 200<<10)}}
	first := instance("c1", "c")
	if err := r.hide(first, long); err != nil {
		t.Fatal(err)
	}
	r.Index.PutContainer(first)
	if err := r.hide(instance("c2", "c"), long); err != nil {
		t.Errorf("a restart: %v", err)
	}
	if err := r.hide(instance("d1", "d"), long); !errors.Is(err, errNoRoom) {
		t.Errorf("another container: %v", err)
	}
	if _, err := os.Stat(r.Dirs.HiddenFile("d1")); err == nil {
		t.Error("it is refused, and written")
	}
}

func TestWhatFilesTake(t *testing.T) {
	page := pages(1)
	for name, tt := range map[string]struct {
		files map[string]payload.File
		want  int64
	}{
		"no files":         {nil, 3 * inodeCost},
		"an empty file":    {filesOf(0), 5 * inodeCost},
		"a byte":           {filesOf(1), page + 5*inodeCost},
		"a page and more":  {filesOf(int(page) + 1), 2*page + 5*inodeCost},
		"two directories":  {map[string]payload.File{"a/b/c": {}, "a/b/d": {}}, 8 * inodeCost},
		"a very long name": {map[string]payload.File{strings.Repeat("k", 200): {}}, page + 5*inodeCost},
	} {
		if got := charge(tt.files); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
	if r := (&Secrets{Limit: 64 << 20}); r.tmpfsOptions() != ",size=100663296,nr_inodes=98304" {
		t.Error(r.tmpfsOptions())
	}
}
