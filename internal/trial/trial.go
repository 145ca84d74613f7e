// Package trial judges pods that a command waits for, as `monopod once` and `monopod up` do. It owns the rules of when a pod is up, has
// finished or has failed, the report with its formats (JSON, JUnit, environment variables), and the ports and subnets of runs.
//
// It is pure and has no goroutines: it is given pods and a time, and must not know where they come from.
package trial

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
)

// Result is how something came out.
type Result string

// Results.
const (
	// Waiting is neither up nor finished.
	Waiting Result = "waiting"
	// OK is Ready, or has finished well.
	OK Result = "ok"
	// Failed pods have failed for good, by the rules.
	Failed Result = "failed"
	// TimedOut is the result of a run some of whose pods were Waiting to the end.
	TimedOut Result = "timeout"
	// Interrupted is the result of a run that was interrupted.
	Interrupted Result = "interrupted"
)

// Rules define when a pod is up and when it has failed.
type Rules struct {
	// MaxRestarts is how often a container that is not ready may have been restarted; negative: any number of times.
	MaxRestarts int
	// MinReady is how long a pod must have been ready if one of its containers has no readiness probe: a server looks like a program that
	// is about to fail.
	MinReady time.Duration
	// Finish: pods with restartPolicy Never or OnFailure are waited for until they have finished.
	Finish bool
	// Addresses: it is enough that a pod has its addresses.
	Addresses bool
}

// View is a pod as it is now.
type View struct {
	Pod *corev1.Pod
	// Why is the first known cause.
	Why string
	// Failing are the causes of the steps that failed last and are repeated.
	Failing []cause.Cause
}

// Trial follows pods until each is up, finished or failed. It belongs to one goroutine.
type Trial struct {
	rules   Rules
	began   time.Time
	pods    []manifests.Key
	objects []*manifests.Object
	// ready is since when pods have been ready without a break, as far as was seen.
	ready map[manifests.Key]time.Time
	// denied is since when the registry has refused the image of each container, as far as observed without interruption.
	denied map[containerKey]time.Time
	// decided is when the result of a pod came to be what it is.
	decided map[manifests.Key]decision
}

type containerKey struct {
	pod  manifests.Key
	name string
}

type decision struct {
	result Result
	after  time.Duration
}

// New returns the trial of the documents.
func New(rules Rules, began time.Time, pods []*manifests.Pod, workloads []*manifests.Object) *Trial {
	t := &Trial{rules: rules, began: began, objects: workloads, ready: map[manifests.Key]time.Time{}, decided: map[manifests.Key]decision{}}
	for _, p := range pods {
		t.pods = append(t.pods, p.Key())
	}
	return t
}

// Look judges the pods at now. jobs maps Jobs, by "namespace/name", to "Complete" or "Failed". next is when the result may change without
// any event; zero: never.
func (t *Trial) Look(now time.Time, views []View, jobs map[string]string) (r Report, next time.Time) {
	r = Report{Result: OK, Seconds: seconds(now.Sub(t.began)), Pods: []Pod{}}
	wake := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	t.denied = denials(now, views, t.denied)
	seen := map[manifests.Key]bool{}
	for _, v := range views {
		p, again := t.judge(now, v, jobs)
		wake(again)
		seen[p.Key()] = true
		r.Pods = append(r.Pods, p)
	}
	for _, key := range t.pods {
		if !seen[key] {
			r.Pods = append(r.Pods, Pod{Namespace: key.Namespace, Name: key.Name, Result: Waiting, Reason: "it has not been created yet", Seconds: r.Seconds})
		}
	}
	for _, w := range t.objects {
		if o := workload(w, r.Pods, jobs); o.Kind != "" {
			o.Seconds = r.Seconds
			r.Workloads = append(r.Workloads, o)
		}
	}
	sort.Slice(r.Pods, func(i, j int) bool {
		a, b := &r.Pods[i], &r.Pods[j]
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) < 0
	})
	r.Result = r.sum()
	return r, next
}

// sum is the result of all together.
func (r Report) sum() Result {
	sum := OK
	add := func(one Result) {
		if one == Failed || one == Waiting && sum == OK {
			sum = one
		}
	}
	for _, p := range r.Pods {
		if !p.byOwner {
			add(p.Result)
		}
	}
	for _, w := range r.Workloads {
		add(w.Result)
	}
	return sum
}

// Decided reports whether nothing is waited for.
func (r Report) Decided() bool {
	return !slices.ContainsFunc(r.Pods, func(p Pod) bool { return !p.byOwner && p.Result == Waiting }) &&
		!slices.ContainsFunc(r.Workloads, func(w Workload) bool { return w.Result == Waiting })
}

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// judge returns the result of a pod, and when it may change without an event.
func (t *Trial) judge(now time.Time, v View, jobs map[string]string) (p Pod, again time.Time) {
	p = describe(v.Pod)
	p.Result, p.Reason, again = t.result(now, v)
	if kind, name := controller(v.Pod); kind == "Job" || kind == "CronJob" {
		p.byOwner = true
		switch end := jobs[p.Namespace+"/"+name]; { // what becomes of a pod of a Job is the Job's business
		case v.Pod.Status.Phase == corev1.PodSucceeded || end == "Complete":
			p.Result, p.Reason = OK, ""
		case v.Pod.Status.Phase != corev1.PodFailed && end != "Failed":
			p.Result, p.Reason = Waiting, cmp.Or(v.Why, "it has not finished")
		}
	}
	was, ok := t.decided[p.Key()]
	if !ok || was.result != p.Result {
		was = decision{p.Result, now.Sub(t.began)}
		t.decided[p.Key()] = was
	}
	if p.Seconds = seconds(was.after); p.Result == Waiting {
		p.Seconds = seconds(now.Sub(t.began))
	}
	return p, again
}

// result judges a pod by itself.
func (t *Trial) result(now time.Time, v View) (Result, string, time.Time) {
	pod, key := v.Pod, manifests.Key{Namespace: v.Pod.Namespace, Name: v.Pod.Name}
	ready := manifests.IsReady(pod)
	if !ready {
		delete(t.ready, key)
	}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		return OK, "", time.Time{}
	case pod.Status.Phase == corev1.PodFailed:
		return Failed, failedReason(pod, v.Why), time.Time{}
	case t.rules.Addresses && pod.Status.PodIP != "":
		return OK, "", time.Time{}
	case t.rules.Finish && pod.Spec.RestartPolicy != corev1.RestartPolicyAlways:
		if ready {
			return Waiting, cmp.Or(v.Why, "it is Ready, but has not finished, which --until ready does not wait for"), time.Time{}
		}
		return t.unready(now, v, "it has not finished")
	case !ready:
		return t.unready(now, v, "it is not Ready")
	}
	since, known := t.ready[key]
	if !known {
		since = now
		t.ready[key] = now
	}
	if at := since.Add(t.rules.MinReady); now.Before(at) && !probed(pod) {
		return Waiting, "it has only just become Ready", at
	}
	return OK, "", time.Time{}
}

// unready judges a pod that is not Ready; otherwise is the reason if none is known.
func (t *Trial) unready(now time.Time, v View, otherwise string) (Result, string, time.Time) {
	why, again := t.hopeless(v.Pod), time.Time{}
	if why == "" {
		why, again = t.deniedImage(now, v.Pod)
	}
	if why != "" {
		return Failed, why, time.Time{}
	}
	return Waiting, cmp.Or(v.Why, otherwise), again
}

// imagePatience is the retry period for an image that the registry does not have: a push may be in progress.
const imagePatience = 20 * time.Second

// denied reports whether the image of a container cannot be pulled because the registry has none, or none for this platform, or does
// not give it to us.
func (v View) denied(container string) bool {
	return slices.ContainsFunc(v.Failing, func(c cause.Cause) bool {
		if c.Container != container && c.Container != "" {
			return false
		}
		switch c.Kind {
		case cause.ImageNotFound, cause.ImageUnauthorized, cause.ImageForbidden, cause.ImagePlatform:
			return true
		}
		return false
	})
}

// denials returns since when registries have denied the images of containers; was is the result of the last call.
func denials(now time.Time, views []View, was map[containerKey]time.Time) map[containerKey]time.Time {
	denied := map[containerKey]time.Time{}
	for _, v := range views {
		for _, c := range statuses(v.Pod) {
			if w := c.State.Waiting; w == nil || w.Reason != "ErrImagePull" && w.Reason != "ImagePullBackOff" || !v.denied(c.Name) {
				continue
			}
			key := keyOf(v.Pod, c.Name)
			since, known := was[key]
			if !known {
				since = now
			}
			denied[key] = since
		}
	}
	return denied
}

// deniedImage returns why a pod cannot get its image, "" while it may; again is when that changes by itself.
func (t *Trial) deniedImage(now time.Time, pod *corev1.Pod) (why string, again time.Time) {
	if t.rules.MaxRestarts < 0 { // everything is waited for
		return "", time.Time{}
	}
	for _, c := range statuses(pod) {
		since, denied := t.denied[keyOf(pod, c.Name)]
		if !denied {
			continue
		}
		at := since.Add(imagePatience)
		if w := c.State.Waiting; !now.Before(at) {
			return strings.TrimSuffix(fmt.Sprintf("container %s: %s: %s", c.Name, w.Reason, w.Message), ": "), time.Time{}
		}
		if again.IsZero() || at.Before(again) {
			again = at
		}
	}
	return "", again
}

func keyOf(pod *corev1.Pod, container string) containerKey {
	return containerKey{manifests.Key{Namespace: pod.Namespace, Name: pod.Name}, container}
}

// statuses are those of all containers of a pod.
func statuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// probed reports whether each container has a readiness probe.
func probed(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.ReadinessProbe == nil })
}

// hopeless returns why a pod that is not ready never will be, "" while it may. All documents of a run exist from the beginning, so a
// missing one stays missing.
func (t *Trial) hopeless(pod *corev1.Pod) string {
	for _, c := range statuses(pod) {
		if w := c.State.Waiting; w != nil {
			switch w.Reason {
			case "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError":
				return strings.TrimSuffix(fmt.Sprintf("container %s: %s: %s", c.Name, w.Reason, w.Message), ": ")
			}
		}
		if t.rules.MaxRestarts >= 0 && int(c.RestartCount) >= max(1, t.rules.MaxRestarts) && !c.Ready && c.State.Running == nil {
			text := fmt.Sprintf("container %s was restarted %d times", c.Name, c.RestartCount)
			if c.RestartCount == 1 {
				text = fmt.Sprintf("container %s was restarted once", c.Name)
			}
			if end := c.LastTerminationState.Terminated; end != nil {
				text += "; " + ended(c.Name, end)
			}
			return text
		}
	}
	return ""
}
