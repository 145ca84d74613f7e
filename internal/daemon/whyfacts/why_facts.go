// Package whyfacts collects what the daemon and the machine know of a pod, for package why to answer with.
//
// It must not word answers itself. It has no goroutines.
package whyfacts

import (
	"bytes"
	"context"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/internal/daemon/board"
	"monopod/internal/daemon/imagegc"
	"monopod/internal/logfile"
	"monopod/internal/model"
	"monopod/internal/needs"
	"monopod/internal/offline"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/events"
	"monopod/node/netinfo"
	"monopod/node/why"
	"monopod/runner/ctrd"
	"monopod/runner/podstatus"
)

// Explainer is node.Whys: it collects what the daemon knows, and looks at the machine while it is asked.
type Explainer struct {
	Board  *board.Board
	Logs   logfile.Files
	Places why.Places
	// Instance is this daemon.
	Instance why.Instance
	// Now is the clock.
	Now func() time.Time
	// Proc is /proc.
	Proc   string
	Events *events.Recorder
	Images *imagegc.Images
	Hidden *board.Hidden
	// Unfit are the pods of an API server that cannot run here; nil: there is none.
	Unfit func() []why.Unfit
}

// Why implements node.Whys.
func (e *Explainer) Why(ctx context.Context, namespace, name string) (why.Answer, error) {
	f, err := e.facts(ctx, namespace, name)
	return f.About(namespace, name), err
}

// facts are what an answer about a name follows from; empty: about all in the namespace, or anywhere.
func (e *Explainer) facts(ctx context.Context, namespace, name string) (why.Facts, error) {
	k, err := e.Board.Known()
	f := why.Facts{Now: e.Now(), Places: e.Places, Instance: e.Instance}
	if k.Pool != nil {
		k.Trouble = board.Reach(ctx, k.Pool)
	}
	if k.Trouble != nil {
		f.Runtime = k.Trouble.Error()
	}
	for i := range k.Statuses {
		s := &k.Statuses[i]
		if name == "" && namespace != "" && s.Pod.Namespace != namespace {
			continue
		}
		p := reported(s)
		if name == "" || offline.MayMean(s.Pod, namespace, name) {
			e.look(ctx, &p, s, k.Statuses)
		}
		f.Pods = append(f.Pods, p)
	}
	for _, p := range e.Board.LeavingFacts(f.Pods) {
		if name != "" || namespace == "" || p.Object.Namespace == namespace {
			f.Pods = append(f.Pods, p)
		}
	}
	f.Inputs = inputFacts(k.Desired.Inputs)
	f.Objects = objectFacts(slices.Concat(k.Desired.Objects, k.Desired.Workloads))
	f.Named = offline.NamesInRefused(f.Inputs)
	if e.Unfit != nil {
		f.Unfit = e.Unfit()
	}
	return f, err
}

// reported is what a pool tells of a pod.
func reported(s *podstatus.Status) why.Pod {
	t := s.Trouble
	p := why.Pod{
		Object: s.Pod, Where: verdict.Place(s.Origin), NextTry: s.NextTry, Refused: s.Refused,
		Trouble: why.Trouble{
			Kind: string(t.Kind), Container: t.Container, Reason: t.Reason, Message: t.Message, Count: t.Count, At: t.At, Stopped: t.Stopped, Text: s.Why,
			Cause: t.Cause, Final: t.Final, Stopping: t.Stopping,
		},
	}
	for _, d := range s.Doing {
		p.Doing = append(p.Doing, why.Doing{Kind: string(d.Kind), Container: d.Container, Phase: d.Phase, Since: d.Since})
	}
	for name, by := range s.EndedBy {
		if p.EndedBy == nil {
			p.EndedBy = map[string]string{}
		}
		p.EndedBy[name] = string(by)
	}
	return p
}

// look adds what has to be looked up: the last lines of what ended, who has the pod's ports, which revision it is.
func (e *Explainer) look(ctx context.Context, p *why.Pod, s *podstatus.Status, all []podstatus.Status) {
	if v, ok := e.Board.Rollouts.View(s.Key()); ok {
		p.Revision, p.Rollback, p.Update = v.Active, board.RollbackOf(v), board.UpdateText(v)
	}
	p.Probes = s.Probes
	events := e.Events.List(offline.PodEvents(s.Pod.Namespace, s.Pod.Name))
	p.LogsDropped = unsettled(events, ctrd.EventLogsDropped, ctrd.EventLogsResumed)
	p.NetworkDamaged = unsettled(events, ctrd.EventNetworkDamaged, ctrd.EventNetworkRepaired)
	p.NotMirrored = e.Hidden.Why(s.Key())
	p.Output = e.output(ctx, s.Pod)
	if s.Trouble.Kind == podstatus.TroubleUnderway {
		p.Pulls = e.pulls(ctx, s.Pod)
	}
	if len(p.Output) > 0 {
		p.Events = offline.EventLines(e.Events.List(offline.PodEvents(s.Pod.Namespace, s.Pod.Name)))
	}
	if s.Pod.Spec.HostNetwork && s.Trouble.Kind == podstatus.TroubleExited {
		p.Listeners = e.holders(p.Output, s.Pod, all)
	}
	if refuses := func(v model.Probe) bool { return v.Fault == cause.Refused }; slices.ContainsFunc(p.Probes, refuses) {
		p.Listeners = e.inside(s.Pod, s.Trouble.Container, all)
	}
}

// unsettled is what the events of a pod say of something that began and is not over: the message of the last event of
// the first reason, unless one of the second followed.
func unsettled(all []corev1.Event, begun, over string) string {
	text, at := "", time.Time{}
	for i := range all {
		ev := &all[i]
		if (ev.Reason == begun || ev.Reason == over) && !ev.LastTimestamp.Time.Before(at) {
			text, at = "", ev.LastTimestamp.Time
			if ev.Reason == begun {
				text = ev.Message
			}
		}
	}
	return text
}

// pulls tell how far the images of a pod are that are being pulled.
func (e *Explainer) pulls(ctx context.Context, pod *corev1.Pod) []model.Pull {
	found, err := e.Images.Pulls(ctx, needs.ImagesOf(&pod.Spec))
	if err != nil {
		return nil
	}
	return found
}

// inside finds who waits on which port where the pod's containers are.
func (e *Explainer) inside(pod *corev1.Pod, container string, all []podstatus.Status) []why.Listener {
	for _, st := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if st.Name != container || st.State.Running == nil {
			continue
		}
		pid := netinfo.ProcessIn(e.Proc, offline.BareContainerID(st.ContainerID))
		if pid == 0 {
			return nil
		}
		found, _ := netinfo.Listeners(e.Proc, pid, func(int) bool { return true })
		of := listenerFacts(found, all)
		if pod.Spec.HostNetwork { // the machine has many
			of = slices.DeleteFunc(of, func(l why.Listener) bool { return l.Pod != pod.Namespace+"/"+pod.Name })
		}
		return of
	}
	return nil
}

// output reads the last lines of the containers of a pod whose last run was in vain.
func (e *Explainer) output(ctx context.Context, pod *corev1.Pod) map[string][]string {
	lines := map[string][]string{}
	for _, st := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		end := st.State.Terminated
		if end == nil {
			end = st.LastTerminationState.Terminated
		}
		if end == nil || end.ContainerID == "" {
			continue
		}
		id, next := offline.BareContainerID(end.ContainerID), offline.BareContainerID(st.ContainerID)
		if next == id {
			next = ""
		}
		var out bytes.Buffer
		q := node.LogQuery{Pod: pod, Instance: node.Instance{Container: st.Name, ID: id, Successor: next}, Tail: offline.LastLines}
		if err := e.Logs.ReadLog(ctx, q, &out); err == nil {
			lines[st.Name] = offline.SplitLines(out.String())
		}
	}
	return lines
}

func takenPort(output map[string][]string) (int, bool) {
	for _, name := range slices.Sorted(maps.Keys(output)) {
		if port, taken := why.PortTaken(output[name]); taken {
			return port, true
		}
	}
	return 0, false
}

// holders finds who waits on the port that the output of a pod says is taken. If it does not say which, any number that
// the pod's containers name in ports, commands or the environment may be; if it says nothing, any port that they name.
func (e *Explainer) holders(output map[string][]string, pod *corev1.Pod, all []podstatus.Status) []why.Listener {
	port, taken := takenPort(output)
	named := map[int]bool{port: port != 0}
	for c := range manifests.AllContainers(&pod.Spec) {
		for _, p := range c.Ports {
			named[int(p.ContainerPort)] = true
		}
		if !taken || port != 0 {
			continue
		}
		words := slices.Concat(c.Command, c.Args)
		for _, v := range c.Env {
			words = append(words, v.Value)
		}
		for _, number := range portNumbers.FindAllString(strings.Join(words, " "), -1) {
			n, _ := strconv.Atoi(number)
			named[n] = true
		}
	}
	found, _ := netinfo.Listeners(e.Proc, 0, func(p int) bool { return p == port || port == 0 && named[p] })
	return listenerFacts(found, all)
}

var portNumbers = regexp.MustCompile(`\b\d{2,5}\b`)

func listenerFacts(found []netinfo.Listener, all []podstatus.Status) []why.Listener {
	var out []why.Listener
	for _, l := range found {
		w := why.Listener{Protocol: l.Protocol, Port: int(l.Addr.Port()), PID: l.PID, Name: l.Name}
		if ip := l.Addr.Addr(); !ip.IsUnspecified() {
			w.IP = ip.String()
		}
		w.Pod, w.Container = containerOf(l.Cgroup, all)
		out = append(out, w)
	}
	return out
}

// containerOf finds the container whose process is in a cgroup, which is named after it.
func containerOf(cgroup string, all []podstatus.Status) (pod, container string) {
	for i := range all {
		p := all[i].Pod
		for _, st := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if id := offline.BareContainerID(st.ContainerID); st.ContainerID != "" && strings.Contains(cgroup, id) {
				return p.Namespace + "/" + p.Name, st.Name
			}
		}
	}
	return "", ""
}

func inputFacts(reports []model.Input) []model.Input {
	return slices.DeleteFunc(slices.Clone(reports), board.IsOwnDirectory)
}

func objectFacts(objects []*manifests.Object) []why.Object {
	var all []why.Object
	for _, o := range objects {
		w := why.Object{Kind: o.Kind, Namespace: o.Object.GetNamespace(), Name: o.Object.GetName(), Where: verdict.Place(o.Origin)}
		switch c := o.Object.(type) {
		case *corev1.ConfigMap:
			w.Keys = slices.Concat(slices.Collect(maps.Keys(c.Data)), slices.Collect(maps.Keys(c.BinaryData)))
		case *corev1.Secret:
			w.Keys = slices.Collect(maps.Keys(c.Data))
		case *corev1.Service:
			w.Selector = c.Spec.Selector
		}
		all = append(all, w)
	}
	return all
}
