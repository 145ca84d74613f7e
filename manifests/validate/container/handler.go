package container

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/validate/check"
)

// handlersChecker checks probes, hooks and restart rules.
type handlersChecker struct{ *check.Checker }

func handlersOf(c *check.Checker) handlersChecker { return handlersChecker{c} }

// probes checks the three probes of a container.
func (c handlersChecker) probes(path *field.Path, container *corev1.Container) {
	if p := container.LivenessProbe; p != nil {
		c.probe(path.Child("livenessProbe"), p)
		c.succeedsAtOnce(path.Child("livenessProbe"), p)
	}
	if p := container.ReadinessProbe; p != nil {
		c.probe(path.Child("readinessProbe"), p)
		if p.TerminationGracePeriodSeconds != nil {
			c.Invalid(path.Child("readinessProbe", "terminationGracePeriodSeconds"), p.TerminationGracePeriodSeconds,
				"must not be set for readinessProbes")
		}
	}
	if p := container.StartupProbe; p != nil {
		c.probe(path.Child("startupProbe"), p)
		c.succeedsAtOnce(path.Child("startupProbe"), p)
	}
}

func (c handlersChecker) succeedsAtOnce(path *field.Path, p *corev1.Probe) {
	if p.SuccessThreshold != 1 {
		c.Invalid(path.Child("successThreshold"), p.SuccessThreshold, "must be 1")
	}
}

func (c handlersChecker) probe(path *field.Path, p *corev1.Probe) {
	c.handler(path, handler{exec: p.Exec, httpGet: p.HTTPGet, tcpSocket: p.TCPSocket, grpc: p.GRPC})
	for _, f := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds},
		{"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		if f.value < 0 {
			c.Invalid(path.Child(f.name), f.value, "must be greater than or equal to 0")
		}
	}
	if p.TerminationGracePeriodSeconds != nil && *p.TerminationGracePeriodSeconds <= 0 {
		c.Invalid(path.Child("terminationGracePeriodSeconds"), *p.TerminationGracePeriodSeconds, "must be greater than 0")
	}
}

// lifecycle checks hooks and the stop signal.
func (c handlersChecker) lifecycle(path *field.Path, l *corev1.Lifecycle) {
	if l == nil {
		return
	}
	if h := l.PostStart; h != nil {
		c.handler(path.Child("postStart"), handler{exec: h.Exec, httpGet: h.HTTPGet, tcpSocket: h.TCPSocket, sleep: h.Sleep})
	}
	if h := l.PreStop; h != nil {
		c.handler(path.Child("preStop"), handler{exec: h.Exec, httpGet: h.HTTPGet, tcpSocket: h.TCPSocket, sleep: h.Sleep})
	}
	if l.StopSignal != nil {
		c.stopSignal(path.Child("stopSignal"), *l.StopSignal)
	}
}

func (c handlersChecker) stopSignal(path *field.Path, signal corev1.Signal) {
	os := c.Pod.Spec.OS
	switch {
	case os == nil:
		c.Forbidden(path, "may not be set for containers with empty `spec.os.name`")
	case os.Name == corev1.Windows:
		check.OneOf(c.Checker, path, signal, corev1.SIGKILL, corev1.SIGTERM)
	case os.Name == corev1.Linux:
		check.OneOf(c.Checker, path, signal, linuxSignals()...)
	}
}

func linuxSignals() []corev1.Signal {
	signals := []corev1.Signal{
		corev1.SIGABRT, corev1.SIGALRM, corev1.SIGBUS, corev1.SIGCHLD, corev1.SIGCLD, corev1.SIGCONT, corev1.SIGFPE,
		corev1.SIGHUP, corev1.SIGILL, corev1.SIGINT, corev1.SIGIO, corev1.SIGIOT, corev1.SIGKILL, corev1.SIGPIPE,
		corev1.SIGPOLL, corev1.SIGPROF, corev1.SIGPWR, corev1.SIGQUIT, corev1.SIGSEGV, corev1.SIGSTKFLT,
		corev1.SIGSTOP, corev1.SIGSYS, corev1.SIGTERM, corev1.SIGTRAP, corev1.SIGTSTP, corev1.SIGTTIN,
		corev1.SIGTTOU, corev1.SIGURG, corev1.SIGUSR1, corev1.SIGUSR2, corev1.SIGVTALRM, corev1.SIGWINCH,
		corev1.SIGXCPU, corev1.SIGXFSZ, corev1.SIGRTMIN, corev1.SIGRTMAX,
	}
	for i := 1; i <= 15; i++ {
		signals = append(signals, corev1.Signal(fmt.Sprintf("SIGRTMIN+%d", i)))
	}
	for i := 1; i <= 14; i++ {
		signals = append(signals, corev1.Signal(fmt.Sprintf("SIGRTMAX-%d", i)))
	}
	slices.Sort(signals)
	return signals
}

// handler is what probes and hooks have in common.
type handler struct {
	exec      *corev1.ExecAction
	httpGet   *corev1.HTTPGetAction
	tcpSocket *corev1.TCPSocketAction
	grpc      *corev1.GRPCAction
	sleep     *corev1.SleepAction
}

// handler checks that there is one action, and that action.
func (c handlersChecker) handler(path *field.Path, h handler) {
	found := false
	for _, action := range []struct {
		name  string
		set   bool
		check func(*field.Path)
	}{
		{"exec", h.exec != nil, func(at *field.Path) {
			if len(h.exec.Command) == 0 {
				c.Required(at.Child("command"), "")
			}
		}},
		{"httpGet", h.httpGet != nil, func(at *field.Path) { c.httpGet(at, h.httpGet) }},
		{"tcpSocket", h.tcpSocket != nil, func(at *field.Path) { c.port(at.Child("port"), h.tcpSocket.Port) }},
		{"grpc", h.grpc != nil, func(at *field.Path) { c.grpc(at, h.grpc) }},
		{"sleep", h.sleep != nil, func(at *field.Path) { c.sleep(at, h.sleep.Seconds) }},
	} {
		switch at := path.Child(action.name); {
		case !action.set:
		case found:
			c.Forbidden(at, "may not specify more than 1 handler type")
		default:
			found = true
			action.check(at)
		}
	}
	if !found {
		c.Required(path, "must specify a handler type")
	}
}

func (c handlersChecker) httpGet(path *field.Path, get *corev1.HTTPGetAction) {
	c.port(path.Child("port"), get.Port)
	check.OneOf(c.Checker, path.Child("scheme"), get.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
	if get.Protocol != nil {
		check.OneOf(c.Checker, path.Child("protocol"), *get.Protocol, corev1.HTTPProtocolHTTP1, corev1.HTTPProtocolHTTP2)
		if *get.Protocol == corev1.HTTPProtocolHTTP2 {
			c.httpGet2(path, get)
		}
	}
	for _, header := range get.HTTPHeaders {
		c.Invalid(path.Child("httpHeaders"), header.Name, validation.IsHTTPHeaderName(header.Name)...)
	}
}

// httpGet2 checks what HTTP/2 cannot be combined with.
func (c handlersChecker) httpGet2(path *field.Path, get *corev1.HTTPGetAction) {
	switch {
	case get.Scheme != corev1.URISchemeHTTP:
		c.Invalid(path.Child("protocol"), *get.Protocol, "is only supported with HTTP (H2C)")
	case get.Host != "":
		c.Invalid(path.Child("host"), get.Host, "must be empty when `protocol` is \"HTTP2\"")
	}
}

func (c handlersChecker) grpc(path *field.Path, grpc *corev1.GRPCAction) {
	c.port(path.Child("port"), intstr.FromInt32(grpc.Port))
	if grpc.Mode != nil {
		check.OneOf(c.Checker, path.Child("mode"), *grpc.Mode, corev1.GRPCProbeModePlaintext, corev1.GRPCProbeModeTLS)
	}
}

func (c handlersChecker) port(path *field.Path, port intstr.IntOrString) {
	if port.Type == intstr.String {
		c.Invalid(path, port.StrVal, validation.IsValidPortName(port.StrVal)...)
		return
	}
	c.Invalid(path, port.IntValue(), validation.IsValidPortNum(port.IntValue())...)
}

func (c handlersChecker) sleep(path *field.Path, seconds int64) {
	if grace := *c.Pod.Spec.TerminationGracePeriodSeconds; seconds < 0 || seconds > grace {
		c.Invalid(path, seconds, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", grace))
	}
}

// containerRestartPolicy checks the restart policy and the rules of one container.
func (c handlersChecker) containerRestartPolicy(path *field.Path, container *corev1.Container) {
	rules := container.RestartPolicyRules
	if container.RestartPolicy == nil {
		if len(rules) == 0 {
			return
		}
		c.Required(path.Child("restartPolicy"), "must specify restartPolicy when restart rules are used")
	} else {
		check.OneOf(c.Checker, path.Child("restartPolicy"), *container.RestartPolicy,
			corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)
	}
	const maxRules, maxCodes = 20, 255
	if len(rules) > maxRules {
		c.Add(field.TooMany(path.Child("restartPolicyRules"), len(rules), maxRules))
	}
	for i, rule := range rules {
		at := path.Child("restartPolicyRules").Index(i)
		check.OneOf(c.Checker, at.Child("action"), rule.Action, corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)
		if rule.ExitCodes == nil {
			c.Required(at.Child("exitCodes"), "must be specified")
			continue
		}
		check.OneOf(c.Checker, at.Child("exitCodes", "operator"), rule.ExitCodes.Operator,
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)
		if len(rule.ExitCodes.Values) > maxCodes {
			c.Add(field.TooMany(at.Child("exitCodes", "values"), len(rule.ExitCodes.Values), maxCodes))
		}
	}
}

// resizePolicy reports at path, not at the element: so does the API server.
func (c handlersChecker) resizePolicy(path *field.Path, policies []corev1.ContainerResizePolicy) {
	var seen []corev1.ResourceName
	for i, p := range policies {
		if slices.Contains(seen, p.ResourceName) {
			c.Add(field.Duplicate(path.Index(i), p.ResourceName))
		}
		seen = append(seen, p.ResourceName)
		check.RequiredOneOf(c.Checker, path, p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)
		check.RequiredOneOf(c.Checker, path, p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)
		if c.Pod.Spec.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			c.Invalid(path, p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
		}
	}
}
