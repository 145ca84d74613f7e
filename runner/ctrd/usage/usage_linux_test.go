package usage

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner/ctrd/dirtest"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/record"
)

// diskMeter returns a Meter for a pod with uid "uid" and volume "v", without containerd.
func diskMeter(t testing.TB) (*Meter, *record.Sandbox) {
	t.Helper()
	r := &Meter{Index: record.NewIndex(), Dirs: layout.Dirs{Root: t.TempDir(), PodLogs: t.TempDir()}}
	rec := &record.Sandbox{
		ID: "s", Meta: record.SandboxMeta{UID: "uid", State: record.Active, Key: manifests.Key{Namespace: "ns", Name: "web"}},
		Pod: &manifests.Pod{Object: &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		}}}},
	}
	r.Index.PutSandbox(rec)
	return r, rec
}

func TestAllThatAPodHasOnDiskCounts(t *testing.T) {
	r, rec := diskMeter(t)
	const mi = 1 << 20
	pod := r.Dirs.PodDir("uid")
	for name, size := range map[string]int{
		"messages/id": 1, "messages/id2": 5,
		"volumes/kubernetes.io~empty-dir/v.old/f":  1, // before an edit of its medium: a container may still have it
		"volumes/kubernetes.io~empty-dir/gone/f":   1, // an edit has taken it out
		"volumes/kubernetes.io~empty-dir/memory/f": 1, // not yet in memory
		"volumes/kubernetes.io~empty-dir/v/f":      9, // counts as a volume
		"volumes/kubernetes.io~nfs/x/f":            9, // is another's
		"image-volumes/id/f":                       9, // counts with the layer
		"image-volumes/id3/0/f":                    2, // its container is still being created
	} {
		dirtest.Write(t, filepath.Join(pod, name), size*mi)
	}
	r.Index.PutContainer(&record.Container{ID: "id", Meta: record.ContainerMeta{UID: "uid"}})
	got, err := r.otherSizes(t.Context(), rec)
	if err != nil || got.Bytes < 11*mi || got.Bytes > 11*mi+128<<10 {
		t.Errorf("%d KiB, %v, want 11 MiB", got.Bytes>>10, err)
	}
	for _, name := range []string{"c/0.log", "c/0.log.20260101-000000", "gone/3.log.20260101-000000.gz"} {
		dirtest.Write(t, filepath.Join(r.Dirs.PodLogDir(rec.Meta.Key, "uid"), name), mi)
	}
	logs, err := r.logSizes(t.Context(), rec)
	if err != nil || len(logs) != 2 || logs["c"].Bytes < 2*mi || logs["gone"].Bytes < mi {
		t.Errorf("logs: %v, %v", logs, err)
	}
}
