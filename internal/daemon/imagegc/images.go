// Package imagegc garbage-collects unused images, pulls and removes images on request, and pins the images of kept revisions.
//
// It must not decide which pods run. Its goroutines end with the contexts they are given.
package imagegc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/daemon/imageservice"
	"monopod/internal/model"
	"monopod/internal/needs"
	"monopod/internal/units"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/localapi"
	"monopod/runner"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/gc"
	"monopod/runner/podstatus"
)

const (
	// collectEvery is how often disk usage is checked while no image changes.
	collectEvery = 5 * time.Minute
	// collectSettle is the delay of a collection after a change, which gathers further changes.
	collectSettle = 10 * time.Second
)

// Reasons of events, as of a kubelet.
const (
	eventImageGCFailed       = "ImageGCFailed"
	eventFreeDiskSpaceFailed = "FreeDiskSpaceFailed"
	eventInvalidDiskCapacity = "InvalidDiskCapacity"
)

// Pods tells which pods need images.
type Pods interface {
	// Current returns the desired state and the known status of pods; complete is false until each pod has been observed.
	Current() (desired model.Desired, statuses []podstatus.Status, complete bool)
	// TroubleText returns in one line why no runtime is open.
	TroubleText() string
}

// Images knows why each image is needed, and has the others collected. It implements node.Images.
type Images struct {
	Policy gc.Policy
	Pods   Pods
	Pins   *Pins
	// Record records an event of the node.
	Record func(eventType, reason, message string)
	Log    *slog.Logger
	// reported is used by the goroutine of Follow only.
	reported reportedTrouble

	mu sync.Mutex
	// service is that of the open runtime, nil while none is open. preloaded: its image archives have been imported.
	service   imageservice.Service
	preloaded bool
	// changes counts how often images were added or removed.
	changes uint64
}

// reportedTrouble is what the last collections have reported, so that each event is recorded once.
type reportedTrouble struct {
	failures int
	short    bool
	capacity bool
}

// Use sets the image service of the open runtime; nil: there is none.
func (m *Images) Use(service imageservice.Service, preloaded bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.service, m.preloaded = service, preloaded
	m.changes++
}

// Changed counts a possible change of the images: State returns another number then.
func (m *Images) Changed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
}

// State returns a number that changes whenever images may have changed.
func (m *Images) State() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changes
}

// List returns the images of the runtime.
func (m *Images) List(ctx context.Context) ([]ctrd.ImageUse, error) {
	service, _ := m.current()
	if service == nil {
		return nil, errors.New("images are unavailable: " + m.Pods.TroubleText())
	}
	return service.List(ctx)
}

// Follow collects images of a runtime until ctx ends. It starts once imported is closed: preloaded images must not be collected before.
func (m *Images) Follow(ctx context.Context, service imageservice.Service, imported <-chan struct{}) {
	m.Use(service, false)
	defer m.Use(nil, false)
	select {
	case <-ctx.Done():
		return
	case <-imported:
	}
	m.Use(service, true)
	timer := time.NewTimer(collectSettle)
	defer timer.Stop()
	due := time.Now().Add(collectSettle)
	for {
		select {
		case <-ctx.Done():
			return
		case <-service.Changed():
			m.Changed()
			if soon := time.Now().Add(collectSettle); soon.Before(due) {
				due = soon
				timer.Reset(collectSettle)
			}
			continue
		case <-timer.C:
		}
		m.makeRoom(ctx, service.Wanted())
		out, err := m.collect(ctx, 0)
		if ctx.Err() != nil {
			return
		}
		m.report(out, err)
		wait := collectEvery
		if !out.Next.IsZero() {
			wait = min(wait, max(time.Until(out.Next), collectSettle))
		}
		due = time.Now().Add(wait)
		timer.Reset(wait)
	}
}

// makeRoom removes unused images to free bytes for an image that is being pulled.
func (m *Images) makeRoom(ctx context.Context, bytes int64) {
	if bytes <= 0 {
		return
	}
	out, err := m.collect(ctx, bytes)
	m.Log.Info("the disk was too full for an image; removing unused images", "freed", out.Freed, "removed", out.Removed, "err", err)
}

// errUndecided means that it is not known yet which images are needed.
var errUndecided = errors.New("not all sources, revisions and preload archives have been read yet")

// collect frees at least bytes; 0: as many as the policy requires.
func (m *Images) collect(ctx context.Context, bytes int64) (image.Collected, error) {
	service, preloaded := m.current()
	if service == nil {
		return image.Collected{}, node.ErrStarting
	}
	if _, decided := m.needs(); !decided || !preloaded {
		return image.Collected{}, errUndecided
	}
	defer m.Changed()
	return service.Collect(ctx, image.Collection{Policy: m.Policy, Bytes: bytes, Needs: func() (refs, digests []string, err error) {
		n, decided := m.needs()
		if !decided { // the runtime was lost meanwhile
			return nil, nil, errUndecided
		}
		return slices.Collect(maps.Keys(n.Refs)), slices.Collect(maps.Keys(n.Digests)), nil
	}})
}

// ReclaimImages frees bytes by removing unused images, the least recently used first, and returns how many it has freed.
func (m *Images) ReclaimImages(ctx context.Context, bytes int64) (freed int64, err error) {
	if bytes <= 0 {
		return 0, nil
	}
	out, err := m.collect(ctx, bytes)
	return out.Freed, err
}

// report records the result of a collection as events, as a kubelet does, but each trouble once.
func (m *Images) report(out image.Collected, err error) {
	if errors.Is(err, errUndecided) || errors.Is(err, node.ErrStarting) {
		return
	}
	t := &m.reported
	if errors.Is(err, image.ErrNoCapacity) {
		if !t.capacity {
			m.Record(corev1.EventTypeWarning, eventInvalidDiskCapacity, image.ErrNoCapacity.Error())
		}
		t.capacity = true
		return
	}
	t.capacity = false
	if err != nil {
		t.failures++
		if t.failures == 2 { // the first may be temporary
			m.Record(corev1.EventTypeWarning, eventImageGCFailed, err.Error())
		}
		m.Log.Debug("collect images", "err", err)
		return
	}
	t.failures = 0
	if out.Short > 0 && !t.short {
		m.Record(corev1.EventTypeWarning, eventFreeDiskSpaceFailed, fmt.Sprintf(
			"Insufficient free disk space on the node's image filesystem (%d%% of %s used). Failed to free sufficient space by deleting unused images (freed %d bytes). Investigate disk usage, as it could be used by active images, volumes, logs, or other data.",
			out.Disk.Used(), units.Bytes(out.Disk.Capacity), out.Freed))
	}
	t.short = out.Short > 0
}

// needs returns what needs which images. Until decided is true, other images may be needed, too.
func (m *Images) needs() (n needs.Images, decided bool) {
	n = needs.Images{Refs: map[string][]localapi.ImageNeed{}, Digests: map[string][]localapi.ImageNeed{}}
	desired, statuses, ok := m.Pods.Current()
	for _, p := range desired.Pods {
		n.Spec(&p.Object.Spec, "pod "+p.Key().String())
		for _, dig := range p.Images {
			n.Digest(dig, localapi.ImageNeed{Kind: needs.NeedManifest, By: "pod " + p.Key().String()})
		}
	}
	for _, o := range desired.Workloads {
		if t := manifests.PodTemplate(o.Object); t != nil {
			n.Spec(&t.Spec, o.String())
		}
	}
	for i := range statuses {
		s := &statuses[i]
		n.Spec(&s.Pod.Spec, "pod "+s.Key().String())
		if s.Recorded != nil {
			n.Spec(&s.Recorded.Object.Spec, "pod "+s.Key().String())
		}
		for _, dig := range s.Images {
			n.Digest(dig, localapi.ImageNeed{Kind: needs.NeedManifest, By: "pod " + s.Key().String()})
		}
	}
	for _, r := range desired.Inputs {
		n.Refused(r)
	}
	kept, known := m.Pins.wanted()
	for _, dig := range kept {
		n.Digest(dig, localapi.ImageNeed{Kind: needs.NeedRevision})
	}
	return n, ok && known && desired.Answered()
}

// Images implements node.Images.
func (m *Images) Images(ctx context.Context) (*localapi.ImageList, error) {
	service, preloaded := m.current()
	if service == nil {
		return nil, errors.New("images are unavailable: " + m.Pods.TroubleText())
	}
	all, err := service.List(ctx)
	if err != nil {
		return nil, err
	}
	pulls, err := service.Pulls(ctx, "")
	if err != nil {
		return nil, err
	}
	disk, err := service.Disk()
	if err != nil {
		return nil, err
	}
	n, decided := m.needs()
	targets, err := service.Targets(ctx, slices.Collect(maps.Keys(n.Refs)))
	if err != nil {
		return nil, err
	}
	list := &localapi.ImageList{Items: []localapi.Image{}, Disk: localapi.ImageDisk{
		Capacity: disk.Capacity, Available: disk.Available, UsedPercent: disk.Used(), HighPercent: m.Policy.High, LowPercent: m.Policy.Low,
	}}
	for i := range all {
		v := imageView(&all[i])
		for _, ref := range slices.Sorted(slices.Values(targets[v.Digest])) {
			v.NeededBy = addNeeds(v.NeededBy, n.Refs[ref])
		}
		v.NeededBy = addNeeds(v.NeededBy, n.Digests[v.Digest])
		if !decided || !preloaded {
			v.NeededBy = addNeeds(v.NeededBy, []localapi.ImageNeed{{Kind: needs.NeedUndecided}})
		}
		list.Items = append(list.Items, v)
	}
	list.Pulls = pulls
	return list, nil
}

// Pulls implements node.Images.
func (m *Images) Pulls(ctx context.Context, refs []string) ([]model.Pull, error) {
	list := []model.Pull{}
	service, _ := m.current()
	if service == nil {
		return list, nil
	}
	for _, ref := range refs {
		pulls, err := service.Pulls(ctx, ref)
		if err != nil {
			return nil, err
		}
		for _, p := range pulls[:min(1, len(pulls))] {
			p.Image = ref
			list = append(list, p)
		}
	}
	return list, nil
}

func imageView(i *ctrd.ImageUse) localapi.Image {
	v := localapi.Image{
		Digest: i.Digest, Names: i.Names, RepoDigests: i.RepoDigests, Size: i.Size, Own: i.Own, FirstSeen: i.FirstSeen, LastUsed: i.LastUsed, UsedBy: i.Pods,
	}
	for _, path := range i.Archives {
		v.NeededBy = append(v.NeededBy, localapi.ImageNeed{Kind: needs.NeedPreload, By: path})
	}
	if len(i.Pins) > 0 {
		v.NeededBy = append(v.NeededBy, localapi.ImageNeed{Kind: needs.NeedRevision})
	}
	return v
}

func addNeeds(to, more []localapi.ImageNeed) []localapi.ImageNeed {
	for _, n := range more {
		if !slices.Contains(to, n) {
			to = append(to, n)
		}
	}
	return to
}

// pullTick is the interval of progress reports to a client that waits for a pull.
const pullTick = 250 * time.Millisecond

// Pull implements node.Images.
func (m *Images) Pull(ctx context.Context, r localapi.PullRequest, report func(localapi.PullEvent)) error {
	service, _ := m.current()
	if service == nil {
		return errors.New("images cannot be pulled now: " + m.Pods.TroubleText())
	}
	policy := corev1.PullAlways
	if r.IfNotPresent {
		policy = corev1.PullIfNotPresent
	}
	var told sync.Mutex
	var wg sync.WaitGroup
	for _, ref := range slices.Compact(slices.Sorted(slices.Values(r.Images))) {
		wg.Go(func() {
			pullOne(ctx, service, ref, policy, func(e localapi.PullEvent) {
				told.Lock()
				defer told.Unlock()
				report(e)
			})
		})
	}
	wg.Wait()
	return nil
}

// pullOne pulls an image and reports its progress.
func pullOne(ctx context.Context, service imageservice.Service, ref string, policy corev1.PullPolicy, report func(localapi.PullEvent)) {
	began, ended := time.Now(), make(chan localapi.PullEvent, 1)
	go func() {
		img, err := service.Pull(ctx, ref, policy)
		e := localapi.PullEvent{Image: ref, State: localapi.PullPulled, Seconds: time.Since(began).Seconds()}
		if err != nil {
			e.State, e.Error = localapi.PullFailed, err.Error()
			if step, ok := errors.AsType[*runner.StepError](err); ok {
				e.Reason, e.Error = step.Reason, step.Err.Error()
			}
		} else {
			e.Digest = img.Target
		}
		ended <- e
	}()
	report(localapi.PullEvent{Image: ref, State: localapi.PullPulling})
	tick := time.NewTicker(pullTick)
	defer tick.Stop()
	last := localapi.PullEvent{}
	for {
		select {
		case e := <-ended:
			if e.State == localapi.PullPulled {
				e.Done, e.Total = last.Total, last.Total
			}
			report(e)
			return
		case <-tick.C:
		}
		pulls, err := service.Pulls(ctx, ref)
		if err != nil || len(pulls) == 0 {
			continue
		}
		e := localapi.PullEvent{Image: ref, State: localapi.PullPulling, Done: pulls[0].Done, Total: pulls[0].Total}
		if e != last {
			report(e)
			last = e
		}
	}
}
