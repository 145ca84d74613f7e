package device

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/record"
	"monopod/runner/spec"
)

// testCDI has count devices example.com/dev=0, 1, ...; each one sets a variable.
func testCDI(t testing.TB, count int) *CDI {
	t.Helper()
	var devices []string
	for n := range count {
		devices = append(devices, fmt.Sprintf(`{"name": "%d", "containerEdits": {"env": ["DEV%[1]d=1"]}}`, n))
	}
	dir := t.TempDir()
	text := fmt.Sprintf(`{"cdiVersion": "0.6.0", "kind": "example.com/dev", "devices": [%s]}`, strings.Join(devices, ","))
	if err := os.WriteFile(filepath.Join(dir, "dev.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return &CDI{Index: record.NewIndex(), CDIDirs: []string{dir}}
}

// podWith requests count exclusive devices, and those in the annotation.
func podWith(count int64, annotation string) (*corev1.Pod, *corev1.Container) {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	if annotation != "" {
		p.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{"cdi.k8s.io/test": annotation}}
	}
	if count > 0 {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/dev": *resource.NewQuantity(count, resource.DecimalSI)}
	}
	return p, &p.Spec.Containers[0]
}

func container(pod, id string) *record.Container {
	return &record.Container{ID: id, Meta: record.ContainerMeta{Key: manifests.Key{Namespace: "default", Name: pod}, Name: "c"}}
}

func TestCheckDevices(t *testing.T) {
	r := testCDI(t, 2)
	for _, tt := range []struct {
		name, annotation string
		count            int64
		err              string
	}{
		{name: "none"},
		{name: "all of a kind", count: 2},
		{name: "too many", count: 3, err: "3 devices example.com/dev are requested, the CDI specs in"},
		{name: "by name", annotation: "example.com/dev=1"},
		{name: "an unknown name", annotation: "example.com/dev=7", err: "has device example.com/dev=7"},
		{name: "no name", annotation: "nonsense", err: "nonsense"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := r.CheckDevices(podWith(tt.count, tt.annotation))
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestNamedDevicesAreShared(t *testing.T) {
	r := testCDI(t, 1)
	for n := range 3 {
		var s specs.Spec
		pod, c := podWith(0, "example.com/dev=0")
		own, err := r.GiveDevices(container(fmt.Sprint(n), fmt.Sprint(n)), pod, c, &s)
		if err != nil || len(own) > 0 || s.Process == nil || !slices.Contains(s.Process.Env, "DEV0=1") {
			t.Errorf("container %d: own %v, spec %+v, %v", n, own, s.Process, err)
		}
	}
}

// TestAContainerDoesNotWaitForItsPredecessor: both have the device for a moment, but never run at the same time.
func TestAContainerDoesNotWaitForItsPredecessor(t *testing.T) {
	r := testCDI(t, 1)
	old := container("web", "1")
	old.Meta.Devices = []string{"example.com/dev=0"}
	r.Index.PutContainer(old)
	pod, c := podWith(1, "")
	if own, err := r.GiveDevices(container("web", "2"), pod, c, &specs.Spec{}); err != nil || len(own) != 1 {
		t.Errorf("got %v, %v", own, err)
	}
	r.Book.Forget("2")
	if own, err := r.GiveDevices(container("other", "3"), pod, c, &specs.Spec{}); err == nil {
		t.Errorf("another pod got %v", own)
	}
}

// TestExclusiveDevices applies random actions, and compares with a set of free devices.
func TestExclusiveDevices(t *testing.T) {
	const all = 5
	for seed := range uint64(20) {
		rnd, r := rand.New(rand.NewPCG(seed, 0)), testCDI(t, all)
		has := map[string][]string{}
		for step := range 40 {
			id := fmt.Sprint(step)
			switch {
			case rnd.IntN(2) == 0 && len(has) > 0: // one container ends, or its creation fails
				for id := range has {
					if rec := r.Index.Container(id); rec != nil {
						ended := *rec
						ended.Meta.Exit = &runner.Termination{}
						r.Index.PutContainer(&ended)
					}
					r.Book.Forget(id)
					delete(has, id)
					break
				}
			default:
				free := all
				for _, devices := range has {
					free -= len(devices)
				}
				want := 1 + rnd.IntN(3)
				pod, c := podWith(int64(want), "")
				rec := container(id, id)
				own, err := r.GiveDevices(rec, pod, c, &specs.Spec{})
				if (err == nil) != (want <= free) {
					t.Fatalf("seed %d: %d of %d free devices: %v", seed, want, free, err)
				}
				if err != nil {
					continue
				}
				for other, devices := range has {
					if slices.ContainsFunc(own, func(d string) bool { return slices.Contains(devices, d) }) || len(own) != want {
						t.Fatalf("seed %d: %v, but %s has %v", seed, own, other, devices)
					}
				}
				has[id] = own
				if rnd.IntN(2) == 0 { // recorded
					rec.Meta.Devices = own
					r.Index.PutContainer(rec)
					r.Book.Forget(id)
				}
			}
		}
	}
}

func TestDeviceFiles(t *testing.T) {
	if d, ok := At("/dev/null"); !ok || d.Type != "c" || d.Major != 1 || d.Minor != 3 {
		t.Errorf("/dev/null is %+v, %t", d, ok)
	}
	for _, path := range []string{"/dev/console", "/dev", "/dev/missing"} {
		if d, ok := At(path); ok {
			t.Errorf("%s is %+v", path, d)
		}
	}
	all := All("/dev")
	for _, d := range all {
		if strings.HasPrefix(d.Path, "/dev/pts/") || strings.HasPrefix(d.Path, "/dev/shm/") {
			t.Errorf("%s belongs to each container", d.Path)
		}
	}
	if !slices.ContainsFunc(all, func(d spec.Device) bool { return d.Path == "/dev/null" }) {
		t.Error("/dev/null is missing")
	}
	if got := All(filepath.Join(t.TempDir(), "missing")); len(got) > 0 {
		t.Errorf("a missing directory has %v", got)
	}
}
