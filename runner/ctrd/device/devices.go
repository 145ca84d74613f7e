// Package device finds the devices of this machine, and assigns those of CDI exclusively. It must not create or change devices.
package device

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"monopod/manifests"
	"monopod/runner/ctrd/record"
)

// wantedDevices are the CDI devices that a container requests.
type wantedDevices struct {
	// named devices are shared with other containers.
	named []string
	// counts is the number of exclusive devices of each kind (vendor/class).
	counts map[string]int64
}

func (w wantedDevices) none() bool { return len(w.named) == 0 && len(w.counts) == 0 }

// devicesOf reads the pod's annotations cdi.k8s.io/*, which apply to all of its containers, and the container's limits.
func devicesOf(pod *corev1.Pod, c *corev1.Container) (wantedDevices, error) {
	w := wantedDevices{counts: map[string]int64{}}
	_, named, err := cdi.ParseAnnotations(pod.Annotations)
	if err != nil {
		return w, err
	}
	slices.Sort(named)
	w.named = slices.Compact(named)
	for name, q := range c.Resources.Limits {
		if manifests.IsDeviceKind(name) && q.Value() > 0 {
			w.counts[string(name)] = q.Value()
		}
	}
	return w, nil
}

// deviceBook has the devices assigned to containers that have no record yet.
type deviceBook struct {
	mu sync.Mutex
	// promised are the devices by container id.
	promised map[string][]string
}

func (b *deviceBook) Forget(container string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.promised, container)
}

// CDI assigns the CDI devices of this machine to containers.
type CDI struct {
	Index *record.Index
	// CDIDirs hold the CDI specs.
	CDIDirs []string

	// Book prevents assigning a device twice.
	Book deviceBook
}

// devices reads the CDI specs. They are read each time, which is cheap, because devices come and go.
func (r *CDI) devices() (*cdi.Cache, error) {
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(r.CDIDirs...))
	if err != nil {
		return nil, fmt.Errorf("read CDI specs: %w", err)
	}
	return cache, nil
}

// CheckDevices checks that the devices that a container requests exist, in use or not.
func (r *CDI) CheckDevices(pod *corev1.Pod, c *corev1.Container) error {
	w, err := devicesOf(pod, c)
	if err != nil || w.none() {
		return err
	}
	cache, err := r.devices()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range w.named {
		if cache.GetDevice(name) == nil {
			errs = append(errs, fmt.Errorf("no CDI spec in %s has device %s", strings.Join(r.CDIDirs, ", "), name))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(w.counts)) {
		if has := int64(len(ofKind(cache, kind))); has < w.counts[kind] {
			errs = append(errs, fmt.Errorf("%d devices %s are requested, the CDI specs in %s have %d", w.counts[kind], kind, strings.Join(r.CDIDirs, ", "), has))
		}
	}
	return errors.Join(errs...)
}

// ofKind returns the devices of vendor/class, sorted by name.
func ofKind(cache *cdi.Cache, kind string) []string {
	var all []string
	for _, name := range cache.ListDevices() {
		if strings.HasPrefix(name, kind+"=") {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// GiveDevices adds the requested devices to a spec, and returns the exclusive ones. They stay assigned until the caller makes the
// book forget the container.
func (r *CDI) GiveDevices(rec *record.Container, pod *corev1.Pod, c *corev1.Container, s *specs.Spec) ([]string, error) {
	w, err := devicesOf(pod, c)
	if err != nil || w.none() {
		return nil, err
	}
	if err := r.CheckDevices(pod, c); err != nil {
		return nil, err
	}
	cache, err := r.devices()
	if err != nil {
		return nil, err
	}
	own, err := r.promise(rec, cache, w.counts)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(w.named, own)
	slices.Sort(all)
	if _, err := cache.InjectDevices(s, slices.Compact(all)...); err != nil {
		return nil, fmt.Errorf("CDI: %w", err)
	}
	return own, nil
}

// promise picks free devices. An older container with the same name does not count: it ends before the new one is started.
func (r *CDI) promise(rec *record.Container, cache *cdi.Cache, counts map[string]int64) ([]string, error) {
	b := &r.Book
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := map[string]bool{}
	for _, other := range r.Index.All() {
		same := other.Meta.Key == rec.Meta.Key && other.Meta.Name == rec.Meta.Name
		if same || other.Meta.Exit != nil {
			continue
		}
		for _, d := range other.Meta.Devices {
			taken[d] = true
		}
	}
	for id, devices := range b.promised {
		for _, d := range devices {
			taken[d] = taken[d] || id != rec.ID
		}
	}
	var own []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		free := slices.DeleteFunc(ofKind(cache, kind), func(d string) bool { return taken[d] })
		if int64(len(free)) < counts[kind] {
			return nil, fmt.Errorf("%d devices %s are requested, %d are free", counts[kind], kind, len(free))
		}
		own = append(own, free[:counts[kind]]...)
	}
	if b.promised == nil {
		b.promised = map[string][]string{}
	}
	b.promised[rec.ID] = own
	return own, nil
}
