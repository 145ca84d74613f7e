package why

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
)

// heldPod explains a pod that does not run although nothing of it is broken: it is being removed, it has to wait, or it was ended.
type heldPod struct{ *builder }

func (h *heldPod) removing() {
	h.cause(cause.Removing, "", "it is no longer wanted: %s", h.Trouble.Text)
	if h.Trouble.Reason == "Teardown" {
		if h.Trouble.Count == 0 {
			h.next(time.Time{}, "no action is needed unless this takes minutes")
			return
		}
		h.retried("retry")
		h.act("fix the cause in the message, such as a file system that is still in use")
		return
	}
	switch d := h.Object.DeletionTimestamp; {
	case d == nil:
	case !d.After(h.Now):
		h.next(time.Time{}, "its grace period is over: remaining containers are killed, then it is removed")
	default:
		h.next(d.Time, "remaining containers are killed %s", h.in(d.Time))
	}
}

func (h *heldPod) held() {
	m, c := h.Trouble.Message, h.Trouble.Cause
	switch c.Kind {
	case cause.HostPortPod:
		h.cause(c.Kind, "", "%s%s", m, h.placeOfPod(c.Pod))
		h.next(time.Time{}, "it starts as soon as the port is free")
		h.act("change the hostPort of one of the two, or remove one of them")
	case cause.UIDConflict:
		h.cause(c.Kind, "", "metadata.uid %s is already used by pod %s%s", c.UID, c.Pod, h.placeOfPod(c.Pod))
		h.next(time.Time{}, "it starts as soon as no other pod has that uid")
		h.act("remove the copied metadata.uid from %s, or remove the other pod", h.place())
	case cause.TooManyPods:
		h.cause(c.Kind, "", "%s", m)
		h.next(time.Time{}, "it starts as soon as another pod is removed")
		h.act("remove a pod, or raise maxPods%s", inFile(h.Places.Config))
	case cause.InProgress:
		h.cause(c.Kind, "", "%s", m)
		h.next(time.Time{}, "it starts as soon as that is known, usually at once")
	case cause.Drained, cause.ShuttingDown:
		h.halted()
	case cause.NodeMismatch:
		h.cause(c.Kind, "", "%s", m)
		h.next(time.Time{}, "it starts as soon as its node selector and affinity match the labels of this machine")
		h.act("change nodeSelector or affinity of the pod, or the labels of the node: through the Kubernetes API, or nodeLabels%s", inFile(h.Places.Config))
	case cause.UnderPressure:
		h.cause(c.Kind, "", "%s", m)
		h.next(time.Time{}, "it starts as soon as the pressure is gone")
		h.act("free the resource on this machine; a critical pod starts anyway (priorityClassName: system-node-critical)")
	case cause.OutOfResource:
		h.cause(c.Kind, "", "%s", m)
		if c.Fault == cause.TooLarge {
			h.next(time.Time{}, "it never fits here as it is: it requests more %s than this machine has for all pods together", c.Resource)
			h.act("reduce its %s request in %s, or run it on a larger machine", c.Resource, h.place())
			return
		}
		h.next(time.Time{}, "it starts as soon as enough is released")
		h.act("reduce its %s request, remove another pod, or give it a higher priority than others (priorityClassName)", c.Resource)
	default:
		h.cause(cause.Held, "", "%s: %s", h.Trouble.Reason, m)
		h.retried("it continues")
	}
}

// halted is about a pod that nothing is wrong with, on a machine that does not let it run.
func (h *heldPod) halted() {
	verb := "it does not run"
	if h.anyRunning() {
		verb = "it is being stopped"
	}
	switch c := h.Trouble.Cause; {
	case c.Fault == cause.Cordoned:
		h.cause(cause.Drained, "", "it is not started because this machine is cordoned")
		h.next(time.Time{}, "it starts after `monopod uncordon`")
		h.act("run `monopod uncordon` to let new pods start")
	case c.Kind == cause.Drained:
		h.cause(cause.Drained, "", "%s because this machine is drained", verb)
		h.next(time.Time{}, "it resumes after `monopod undrain`")
		h.act("run `monopod undrain` to let the pods run again")
	case c.Fault == cause.HandedOver:
		h.cause(cause.ShuttingDown, "", "%s here because another agent takes over this machine", verb)
		h.next(time.Time{}, "the other agent runs it; this daemon exits, and runs it again once the lock file is released")
	default:
		h.cause(cause.ShuttingDown, "", "%s because the machine is shutting down", verb)
		h.next(time.Time{}, "it runs again after the machine has booted")
	}
}

func (h *heldPod) failed() {
	switch h.Trouble.Reason {
	case "Evicted", "Preempting":
		h.evicted()
	case "DeadlineExceeded":
		h.cause(cause.Deadline, "", "it exceeded spec.activeDeadlineSeconds and was stopped%s", h.ago(h.Trouble.At))
		h.next(time.Time{}, "it is not restarted")
		h.act("raise activeDeadlineSeconds in %s; any edit recreates the pod", h.place())
	default:
		h.cause(cause.PodFailed, "", "%s: %s", h.Trouble.Reason, h.Trouble.Message)
		h.next(time.Time{}, "it is not restarted until %s is edited", h.place())
	}
}

// annotationSource names the source of a pod, as a kubelet does.
const annotationSource = "kubernetes.io/config.source"

// evicted is about a pod that was ended and is made again: it used too much, or there was too little for all.
func (h *heldPod) evicted() {
	t, pressed := h.Trouble, h.Trouble.Cause.Resource != ""
	switch {
	case t.Reason == "Preempting":
		h.cause(cause.Preempted, "", "it was preempted%s: %s", h.ago(t.At), t.Message)
	case pressed:
		h.cause(cause.Evicted, "", "it was evicted%s because the machine ran low on a resource: %s", h.ago(t.At), t.Message)
	default:
		h.cause(cause.Evicted, "", "it was evicted%s because it used too much disk space: %s", h.ago(t.At), t.Message)
	}
	switch {
	case h.Object.Annotations[annotationSource] == manifests.SourceAPIServer:
		h.next(time.Time{}, "it stays Failed, as reported to the API server; its controller creates another pod")
	case h.Object.Spec.RestartPolicy == corev1.RestartPolicyNever:
		h.next(time.Time{}, "it is not recreated (restartPolicy Never)")
	case h.anyRunning() || h.NextTry.IsZero():
		h.next(time.Time{}, "remaining containers are being stopped; shortly after, the pod is recreated with empty volumes")
	default:
		h.next(h.NextTry, "it is recreated %s with empty volumes", h.in(h.NextTry))
	}
	switch {
	case t.Reason == "Preempting":
		h.act("give it a higher priority, or reduce the requests of the others")
	case pressed:
		h.act("reduce its usage, or request what it needs; the annotation monopod.dev/protected: \"true\" exempts it from eviction")
	default:
		h.act("raise the limit (emptyDir.sizeLimit, or resources.limits.ephemeral-storage) in %s, or reduce what the program writes", h.place())
	}
}
