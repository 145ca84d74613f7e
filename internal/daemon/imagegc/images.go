// Package imagegc collects images that nothing needs any more, pulls and removes them on request, and keeps those of revisions.
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

	"monopod/internal/daemon/board"
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
)

// How often the file system of the images is looked at while nothing changes, and how long changes are waited for to be
// looked at together.
const (
	collectEvery  = 5 * time.Minute
	collectSettle = 10 * time.Second
)

// Reasons of events, which are a kubelet's.
const (
	eventImageGCFailed       = "ImageGCFailed"
	eventFreeDiskSpaceFailed = "FreeDiskSpaceFailed"
	eventInvalidDiskCapacity = "InvalidDiskCapacity"
)

// Images knows why images are needed, has those collected that are not, and answers about all of them.
type Images struct {
	Policy gc.Policy
	Board  *board.Board
	Pins   *Pins
	// Tell records something about this machine.
	Tell func(eventType, reason, message string)
	Log  *slog.Logger
	// trouble is that of follow, which alone knows of it.
	trouble gcTrouble

	mu sync.Mutex
	// service is that of the runtime that is open, nil while none is. preloaded says that its archives are imported.
	service   needs.ImageService
	preloaded bool
	// changes counts how often images came or went.
	changes uint64
}

// gcTrouble is what was wrong when images were last collected.
type gcTrouble struct {
	failures int
	short    bool
	capacity bool
}

func (m *Images) Use(service needs.ImageService, preloaded bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.service, m.preloaded = service, preloaded
	m.changes++
}

// Changed notes that images may have come or gone; state is another one then.
func (m *Images) Changed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
}

// State tells one state of the images from another.
func (m *Images) State() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changes
}

// List returns the images with what the runtime knows of them.
func (m *Images) List(ctx context.Context) ([]ctrd.ImageUse, error) {
	service, _ := m.current()
	if service == nil {
		return nil, errors.New("images cannot be seen now: " + m.Board.WhyBlind())
	}
	return service.List(ctx)
}

// Follow has images collected in a runtime until ctx ends, once imported says that preload archives have been.
func (m *Images) Follow(ctx context.Context, service needs.ImageService, imported <-chan struct{}) {
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
		m.judge(out, err)
		wait := collectEvery
		if !out.Next.IsZero() {
			wait = min(wait, max(time.Until(out.Next), collectSettle))
		}
		due = time.Now().Add(wait)
		timer.Reset(wait)
	}
}

// makeRoom removes images that nobody needs for one that is needed, and may take so many bytes.
func (m *Images) makeRoom(ctx context.Context, bytes int64) {
	if bytes <= 0 {
		return
	}
	out, err := m.collect(ctx, bytes)
	m.Log.Info("the disk was too full for an image: images that nobody needs are removed", "freed", out.Freed, "removed", out.Removed, "err", err)
}

// errUndecided says that it is not known yet which images are needed.
var errUndecided = errors.New("not all sources, revisions and preload archives have been read yet")

// collect frees so many bytes, 0: as many as the policy says.
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
		if !decided { // any more: containerd has gone meanwhile
			return nil, nil, errUndecided
		}
		return slices.Collect(maps.Keys(n.Refs)), slices.Collect(maps.Keys(n.Digests)), nil
	}})
}

// ReclaimImages frees bytes by removing images that nobody needs, those first that were not used for longest, and returns
// how many came free.
func (m *Images) ReclaimImages(ctx context.Context, bytes int64) (freed int64, err error) {
	if bytes <= 0 {
		return 0, nil
	}
	out, err := m.collect(ctx, bytes)
	return out.Freed, err
}

// judge records what is wrong, as a kubelet does, but once and not each time.
func (m *Images) judge(out image.Collected, err error) {
	if errors.Is(err, errUndecided) || errors.Is(err, node.ErrStarting) {
		return
	}
	t := &m.trouble
	if errors.Is(err, image.ErrNoCapacity) {
		if !t.capacity {
			m.Tell(corev1.EventTypeWarning, eventInvalidDiskCapacity, image.ErrNoCapacity.Error())
		}
		t.capacity = true
		return
	}
	t.capacity = false
	if err != nil {
		t.failures++
		if t.failures == 2 { // the first may pass
			m.Tell(corev1.EventTypeWarning, eventImageGCFailed, err.Error())
		}
		m.Log.Debug("collect images", "err", err)
		return
	}
	t.failures = 0
	if out.Short > 0 && !t.short {
		m.Tell(corev1.EventTypeWarning, eventFreeDiskSpaceFailed, fmt.Sprintf(
			"Insufficient free disk space on the node's image filesystem (%d%% of %s used). Failed to free sufficient space by deleting unused images (freed %d bytes). Investigate disk usage, as it could be used by active images, volumes, logs, or other data.",
			out.Disk.Used(), units.Bytes(out.Disk.Capacity), out.Freed))
	}
	t.short = out.Short > 0
}

// needs returns who needs which images. Until it is decided there may be others who do.
func (m *Images) needs() (n needs.Images, decided bool) {
	n = needs.Images{Refs: map[string][]localapi.ImageNeed{}, Digests: map[string][]localapi.ImageNeed{}}
	desired, statuses, ok := m.Board.Wants()
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
		return nil, errors.New("images cannot be seen now: " + m.Board.WhyBlind())
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

// pullTick is how often somebody who waits for a pull hears how far it is.
const pullTick = 250 * time.Millisecond

// Pull implements node.Images.
func (m *Images) Pull(ctx context.Context, r localapi.PullRequest, tell func(localapi.PullEvent)) error {
	service, _ := m.current()
	if service == nil {
		return errors.New("nothing can be pulled now: " + m.Board.WhyBlind())
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
				tell(e)
			})
		})
	}
	wg.Wait()
	return nil
}

// pullOne pulls an image and tells how far it is.
func pullOne(ctx context.Context, service needs.ImageService, ref string, policy corev1.PullPolicy, tell func(localapi.PullEvent)) {
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
	tell(localapi.PullEvent{Image: ref, State: localapi.PullPulling})
	tick := time.NewTicker(pullTick)
	defer tick.Stop()
	last := localapi.PullEvent{}
	for {
		select {
		case e := <-ended:
			if e.State == localapi.PullPulled {
				e.Done, e.Total = last.Total, last.Total
			}
			tell(e)
			return
		case <-tick.C:
		}
		pulls, err := service.Pulls(ctx, ref)
		if err != nil || len(pulls) == 0 {
			continue
		}
		e := localapi.PullEvent{Image: ref, State: localapi.PullPulling, Done: pulls[0].Done, Total: pulls[0].Total}
		if e != last {
			tell(e)
			last = e
		}
	}
}
