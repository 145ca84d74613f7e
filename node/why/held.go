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
	h.cause(cause.Removing, "", "nobody wants it any more: %s", h.Trouble.Text)
	if h.Trouble.Reason == "Teardown" {
		if h.Trouble.Count == 0 {
			h.next(time.Time{}, "nothing is to be done, unless this takes minutes")
			return
		}
		h.retried("it is tried again")
		h.act("correct what the message names, such as a file system that is still in use")
		return
	}
	switch d := h.Object.DeletionTimestamp; {
	case d == nil:
	case !d.After(h.Now):
		h.next(time.Time{}, "its time to end is over: what still runs is killed; then it is gone")
	default:
		h.next(d.Time, "what still runs then is killed %s", h.in(d.Time))
	}
}

func (h *heldPod) held() {
	m, c := h.Trouble.Message, h.Trouble.Cause
	switch c.Kind {
	case cause.HostPortPod:
		h.cause(c.Kind, "", "%s%s", m, h.placeOfPod(c.Pod))
		h.next(time.Time{}, "it starts as soon as the port is free")
		h.act("give one of the two another hostPort, or remove one of them")
	case cause.UIDConflict:
		h.cause(c.Kind, "", "metadata.uid %s is that of pod %s%s", c.UID, c.Pod, h.placeOfPod(c.Pod))
		h.next(time.Time{}, "it starts as soon as no other pod has that uid")
		h.act("remove metadata.uid from %s, which is a copy of the other, or remove the other pod", h.place())
	case cause.TooManyPods:
		h.cause(c.Kind, "", "%s", m)
		h.next(time.Time{}, "it starts as soon as another pod is removed")
		h.act("remove a pod, or raise maxPods%s", inFile(h.Places.Config))
	case cause.Underway:
		h.cause(c.Kind, "", "%s", m)
		h.next(time.Time{}, "it starts as soon as that is known, in a moment")
	case cause.Drained, cause.ShuttingDown:
		h.halted()
	case cause.NodeMismatch:
		h.cause(c.Kind, "", "%s", m)
		h.next(time.Time{}, "it starts as soon as its selection, or the labels of this machine, are others")
		h.act("change nodeSelector or affinity of the pod, or set nodeLabels%s", inFile(h.Places.Config))
	case cause.UnderPressure:
		h.cause(c.Kind, "", "%s", m)
		h.next(time.Time{}, "it starts as soon as the pressure is gone")
		h.act("give the machine what it lacks; a pod that has to start nevertheless is critical (priorityClassName: system-node-critical)")
	case cause.OutOfResource:
		h.cause(c.Kind, "", "%s", m)
		h.next(time.Time{}, "it starts as soon as enough is given back")
		h.act("let it request less %s, remove another pod, or give it a priority above that of others (priorityClassName)", c.Resource)
	default:
		h.cause(cause.Held, "", "%s: %s", h.Trouble.Reason, m)
		h.retried("it goes on")
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
		h.cause(cause.Drained, "", "it is not started, because somebody has cordoned this machine")
		h.next(time.Time{}, "it starts when that is taken back")
		h.act("`monopod uncordon` lets new pods start")
	case c.Kind == cause.Drained:
		h.cause(cause.Drained, "", "%s, because somebody has drained this machine", verb)
		h.next(time.Time{}, "nothing, until that is taken back; then it goes on where it was")
		h.act("`monopod undrain` lets the pods run again")
	case c.Fault == cause.HandedOver:
		h.cause(cause.ShuttingDown, "", "%s here, because another agent takes over this machine", verb)
		h.next(time.Time{}, "that one runs it; monopod ends, and runs it again when the lock file is free")
	default:
		h.cause(cause.ShuttingDown, "", "%s, because the machine is shutting down", verb)
		h.next(time.Time{}, "it runs again when the machine has started")
	}
}

func (h *heldPod) failed() {
	switch h.Trouble.Reason {
	case "Evicted", "Preempting":
		h.evicted()
	case "DeadlineExceeded":
		h.cause(cause.Deadline, "", "it ran longer than its spec.activeDeadlineSeconds allows, and was ended%s", h.ago(h.Trouble.At))
		h.next(time.Time{}, "it does not start again")
		h.act("raise activeDeadlineSeconds in %s; any edit makes the pod anew", h.place())
	default:
		h.cause(cause.PodFailed, "", "%s: %s", h.Trouble.Reason, h.Trouble.Message)
		h.next(time.Time{}, "it does not start again until %s is edited", h.place())
	}
}

// annotationSource names the source of a pod, as a kubelet does.
const annotationSource = "kubernetes.io/config.source"

// evicted is about a pod that was ended and is made again: it used too much, or there was too little for all.
func (h *heldPod) evicted() {
	t, pressed := h.Trouble, h.Trouble.Cause.Resource != ""
	switch {
	case t.Reason == "Preempting":
		h.cause(cause.MadeRoom, "", "it was ended%s to make room: %s", h.ago(t.At), t.Message)
	case pressed:
		h.cause(cause.Evicted, "", "it was ended%s because the machine was short of something: %s", h.ago(t.At), t.Message)
	default:
		h.cause(cause.Evicted, "", "it was ended%s because it used too much of the disk: %s", h.ago(t.At), t.Message)
	}
	switch {
	case h.Object.Annotations[annotationSource] == manifests.SourceAPIServer:
		h.next(time.Time{}, "it stays Failed, as the API server has been told; a controller makes another pod")
	case h.Object.Spec.RestartPolicy == corev1.RestartPolicyNever:
		h.next(time.Time{}, "it does not come back by itself (restartPolicy Never)")
	case h.anyRunning() || h.NextTry.IsZero():
		h.next(time.Time{}, "what still runs is being stopped; a little later the pod is made again, with empty volumes")
	default:
		h.next(h.NextTry, "it is made again %s, with empty volumes", h.in(h.NextTry))
	}
	switch {
	case t.Reason == "Preempting":
		h.act("give it a higher priority, or have the others request less")
	case pressed:
		h.act("have it use less, or request what it needs; the annotation monopod.dev/protected: \"true\" keeps it from being ended")
	default:
		h.act("raise the limit (emptyDir.sizeLimit, or resources.limits.ephemeral-storage) in %s, or have the program write less", h.place())
	}
}
