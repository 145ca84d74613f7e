// Package diagnose collects the facts about pods from which package why derives its answers: state of the daemon, logs, events, ports in use.
//
// It must not draw conclusions or write texts itself. It starts no goroutines.
package diagnose

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/internal/daemon/imagegc"
	"monopod/internal/daemon/state"
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
	"monopod/node/why/clue"
	"monopod/runner/ctrd"
	"monopod/runner/podstatus"
)

// Explainer implements node.Whys. It looks at the machine at each call.
type Explainer struct {
	State  *state.Store
	Logs   logfile.Files
	Places why.Places
	// Instance is the configuration of this daemon.
	Instance why.Instance
	Now      func() time.Time
	// Proc is the proc file system, usually /proc.
	Proc       string
	Events     *events.Recorder
	Images     *imagegc.Images
	Unmirrored *state.Unmirrored
	// Unfit returns the pods bound to this node by an API server that cannot run here; nil: there is no API server.
	Unfit func() []why.Unfit
	// Network describes the network of new pods; empty: it has not been set up.
	Network func() string
	// Services returns the Services with their addresses; nil: they have none.
	Services func() map[manifests.Key]*corev1.Service
	// Copies maps files that are copies to the places where their author wrote them, as file:line.
	Copies map[string]string
}

// Why implements node.Whys.
func (e *Explainer) Why(ctx context.Context, namespace, name string) (why.Answer, error) {
	f, err := e.facts(ctx, namespace, name)
	a := f.About(namespace, name)
	if e.Services != nil {
		addRefusals(&a, f.Pods, e.Services())
	}
	if e.Network != nil {
		addNetwork(&a, f.Pods, name != "", e.Network())
	}
	return a, err
}

// addRefusals adds what Services ask for and do not get to the chains of Services.
func addRefusals(a *why.Answer, pods []why.Pod, services map[manifests.Key]*corev1.Service) {
	for i := range a.Chains {
		c := &a.Chains[i]
		namespace, name, _ := strings.Cut(c.Pod, "/")
		s := services[manifests.Key{Namespace: namespace, Name: name}]
		if s == nil || slices.ContainsFunc(pods, func(p why.Pod) bool { return p.Object.Namespace+"/"+p.Object.Name == c.Pod }) {
			continue
		}
		if reasons := model.Refusal(s); reasons != "" {
			c.Steps = slices.Insert(c.Steps, min(1, len(c.Steps)), why.Step{Kind: why.Cause, Text: strings.ReplaceAll(reasons, "\n", "; ")})
		}
	}
}

// addNetwork adds the network of new pods to the chains of pods that were asked for, and of those where it may be the cause.
func addNetwork(a *why.Answer, pods []why.Pod, asked bool, network string) {
	for i := range a.Chains {
		c := &a.Chains[i]
		at := slices.IndexFunc(pods, func(p why.Pod) bool { return p.Object.Namespace+"/"+p.Object.Name == c.Pod })
		suspect := slices.Contains([]cause.Kind{cause.PodCIDR, cause.CNIPlugin, cause.Network}, c.Reason)
		if network == "" || at < 0 || pods[at].Object.Spec.HostNetwork || !asked && !suspect {
			continue
		}
		after := slices.IndexFunc(c.Steps, func(s why.Step) bool { return s.Kind == why.Runs }) + 1
		c.Steps = slices.Insert(c.Steps, after, why.Step{Kind: why.Network, Text: network})
	}
}

// facts returns the facts for an answer about a pod; without a name about all pods of the namespace, without a namespace about all.
func (e *Explainer) facts(ctx context.Context, namespace, name string) (why.Facts, error) {
	k, err := e.State.Known()
	f := why.Facts{Now: e.Now(), Places: e.Places, Instance: e.Instance}
	if k.Pool != nil {
		k.Trouble = state.Reach(ctx, k.Pool)
	}
	if k.Trouble != nil {
		f.Runtime = k.Trouble.Error()
	}
	for i := range k.Statuses {
		s := &k.Statuses[i]
		if name == "" && namespace != "" && s.Pod.Namespace != namespace {
			continue
		}
		p := e.reported(s)
		if name == "" || offline.MayMean(s.Pod, namespace, name) {
			e.look(ctx, &p, s, k.Statuses)
		}
		f.Pods = append(f.Pods, p)
	}
	for _, p := range e.State.Removals.Facts(f.Pods) {
		if name != "" || namespace == "" || p.Object.Namespace == namespace {
			f.Pods = append(f.Pods, p)
		}
	}
	f.Inputs = inputFacts(k.Desired.Inputs)
	f.Objects = offline.ObjectFacts(slices.Concat(k.Desired.Objects, k.Desired.Workloads), e.place)
	f.Named = offline.NamesInRefused(f.Inputs)
	if e.Unfit != nil {
		f.Unfit = e.Unfit()
	}
	return f, err
}

// place returns where the author of a document edits it.
func (e *Explainer) place(o manifests.Origin) string {
	return cmp.Or(e.Copies[o.File], verdict.Place(o))
}

// reported returns what the pool reports about a pod.
func (e *Explainer) reported(s *podstatus.Status) why.Pod {
	p := why.Pod{Object: s.Pod, Where: e.place(s.Origin), NextTry: s.NextTry, Refused: s.Refused, Trouble: s.Trouble, More: s.More, Doing: s.Doing}
	p.Trouble.Text = s.Why
	for name, by := range s.EndedBy {
		if p.EndedBy == nil {
			p.EndedBy = map[string]string{}
		}
		p.EndedBy[name] = string(by)
	}
	for name, stop := range s.StoppedFor {
		if p.StoppedFor == nil {
			p.StoppedFor = map[string]string{}
		}
		p.StoppedFor[name] = string(stop)
	}
	return p
}

// look adds what has to be looked up: last log lines, processes that use the pod's ports, its revision.
func (e *Explainer) look(ctx context.Context, p *why.Pod, s *podstatus.Status, all []podstatus.Status) {
	if v, ok := e.State.Rollouts.View(s.Key()); ok {
		p.Revision, p.Rollback, p.Update = v.Active, state.RollbackOf(v), state.UpdateText(v)
	}
	p.Probes = s.Probes
	events := e.Events.List(offline.PodEvents(s.Pod.Namespace, s.Pod.Name))
	p.LogsDropped = unsettled(events, ctrd.EventLogsDropped, ctrd.EventLogsResumed)
	p.NetworkDamaged = unsettled(events, ctrd.EventNetworkDamaged, ctrd.EventNetworkRepaired)
	p.NotMirrored = e.Unmirrored.Reason(s.Key())
	p.Output = e.output(ctx, s.Pod)
	if s.Trouble.Kind == model.TroubleInProgress {
		p.Pulls = e.pulls(ctx, s.Pod)
	}
	if len(p.Output) > 0 {
		p.Events = offline.EventLines(e.Events.List(offline.PodEvents(s.Pod.Namespace, s.Pod.Name)))
	}
	if s.Pod.Spec.HostNetwork && s.Trouble.Kind == model.TroubleExited {
		p.Listeners = e.holders(p.Output, s.Pod, all)
	}
	if refuses := func(v model.Probe) bool { return v.Fault == cause.Refused }; slices.ContainsFunc(p.Probes, refuses) {
		p.Listeners = e.inside(s.Pod, s.Trouble.Container, all)
	}
}

// unsettled returns the message of the last event with reason begun, unless an event with reason over is as recent; empty: there is none.
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

// pulls returns the progress of the pod's images that are being pulled.
func (e *Explainer) pulls(ctx context.Context, pod *corev1.Pod) []model.Pull {
	found, err := e.Images.Pulls(ctx, needs.ImagesOf(&pod.Spec))
	if err != nil {
		return nil
	}
	return found
}

// inside returns the processes that listen in the network namespace of a running container.
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
		if pod.Spec.HostNetwork { // the machine has many listeners
			of = slices.DeleteFunc(of, func(l why.Listener) bool { return l.Pod != pod.Namespace+"/"+pod.Name })
		}
		return of
	}
	return nil
}

// output returns the last log lines of the containers of a pod that have terminated, by container.
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
		if port, taken := clue.PortTaken(output[name]); taken {
			return port, true
		}
	}
	return 0, false
}

// holders returns the processes that listen on the port that the output of a pod reports as in use. If the output has no number,
// any number in ports, commands or environment of the pod is a candidate; if it does not mention a port, only its container ports are.
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

// containerOf returns the container of a cgroup path, which contains its id.
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
	return slices.DeleteFunc(slices.Clone(reports), state.IsOwnDirectory)
}
