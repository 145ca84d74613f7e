package plan

import (
	"time"

	"monopod/manifests"
	"monopod/runner"
)

// Planning of pods that fail as a whole: those that run longer than activeDeadlineSeconds, and those that are evicted. The failure is
// recorded before anything is stopped, so that a crash in between cannot restart a container. The failure stands until the definition
// changes, or until the back-off of an eviction is over; then the pod is recreated.

// overdue reports whether the pod has exceeded its deadline and has not completed.
func (p *failer) overdue() bool {
	limit := p.pod.Object.Spec.ActiveDeadlineSeconds
	if limit == nil || p.ended() {
		return false
	}
	left := time.Duration(*limit)*time.Second - p.o.Sandbox.Age
	if left > 0 {
		p.at(p.now.Add(left))
		return false
	}
	return true
}

// expire fails a pod and ends it. If an edit shortened the deadline, the new manifest is recorded first: otherwise the failure would belong
// to another definition, and the pod would run again.
func (p *failer) expire() {
	if rec := p.o.Sandbox.Pod; !p.holding() && rec != nil && p.recordDiffers() && !p.otherContainers(rec) {
		if p.podBlocked() {
			return
		}
		p.add(runner.Action{Kind: runner.RecordPod, Reason: "manifest changed"})
	}
	p.add(runner.Action{Kind: runner.FailPod, Failure: runner.ReasonDeadlineExceeded, Reason: "activeDeadlineSeconds exceeded"})
	p.endFailed()
}

// endFailed ends a pod that has failed.
func (p *failer) endFailed() { p.end("pod has failed") }

// end stops the running containers of a pod and keeps one instance of each container on record.
func (p *stopper) end(reason string) {
	p.stopAll(reason)
	p.finishDebug()
	for spec := range manifests.AllContainers(&p.pod.Object.Spec) {
		p.tidyOne(spec.Name)
	}
	for i := range p.o.Containers {
		if c := &p.o.Containers[i]; !hasContainer(p.pod, c.Name) && c.State != runner.ContainerRunning {
			p.removeInstance(c, "container removed from the manifest")
		}
	}
}

// failed plans a pod that has failed.
func (p *failer) failed() {
	if rec := p.o.Sandbox.Pod; !p.holding() && rec != nil && p.redefined(rec) {
		p.rebuild("definition of a failed pod changed")
		return
	}
	if p.returns() {
		p.rebuild("recreating the evicted pod")
		return
	}
	p.endFailed()
	p.giveBack()
	if !p.holding() && p.recordDiffers() && !p.podBlocked() {
		p.add(runner.Action{Kind: runner.RecordPod, Reason: "manifest changed"})
	}
}

// redefined reports whether the pod differs from the recorded one in its processes or its deadline.
func (p *view) redefined(rec *manifests.Pod) bool {
	a, b := rec.Object.Spec.ActiveDeadlineSeconds, p.pod.Object.Spec.ActiveDeadlineSeconds
	return (a == nil) != (b == nil) || a != nil && *a != *b || p.otherContainers(rec)
}

// otherContainers reports whether the containers of the pod differ from the recorded ones.
func (p *view) otherContainers(rec *manifests.Pod) bool {
	n := 0
	for c := range manifests.AllContainers(&rec.Object.Spec) {
		if p.hashes.Container(rec, c.Name) != p.hashes.Container(p.pod, c.Name) {
			return true
		}
		n++
	}
	return n != len(p.pod.Object.Spec.Containers)+len(p.pod.Object.Spec.InitContainers)
}
