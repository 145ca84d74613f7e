package trial

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// Report is the result of a run.
type Report struct {
	Result Result `json:"result"`
	// Reason is why the run failed apart from its pods.
	Reason  string  `json:"reason,omitempty"`
	Seconds float64 `json:"seconds"`
	Run     Run     `json:"run"`
	Pods    []Pod   `json:"pods"`
	// Workloads are Deployments, Jobs and so on.
	Workloads []Workload `json:"workloads,omitempty"`
	// Refused are the problems of manifests; in JSON one line each.
	Refused []Refusal `json:"refused,omitempty"`
	// Command is what `up` ran; nil: nothing.
	Command *Command `json:"command,omitempty"`
}

// Refusal is a problem of a manifest.
type Refusal struct {
	// Where is its place, as file:line:column, Text all of it, with the place.
	Where, Text string
}

// MarshalText implements encoding.TextMarshaler.
func (r Refusal) MarshalText() ([]byte, error) { return []byte(r.Text), nil }

// UnmarshalText implements encoding.TextUnmarshaler; the place is only part of the text.
func (r *Refusal) UnmarshalText(text []byte) error {
	r.Where, r.Text = "", string(text)
	return nil
}

// Run is where the pods are.
type Run struct {
	// Number names the run.
	Number int `json:"number"`
	// Socket is that of the run's agent.
	Socket string `json:"socket,omitempty"`
	Subnet string `json:"subnet,omitempty"`
	// Log is the log file of the agent.
	Log string `json:"log,omitempty"`
	// Kubeconfig is the file for clients of the run's Kubernetes API.
	Kubeconfig string `json:"kubeconfig,omitempty"`
}

// Pod is how a pod came out.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Result    Result `json:"result"`
	// Reason is why it is not OK.
	Reason string `json:"reason,omitempty"`
	Phase  string `json:"phase,omitempty"`
	// Owner is the workload that it belongs to, as Kind/name.
	Owner string   `json:"owner,omitempty"`
	IP    string   `json:"ip,omitempty"`
	IPs   []string `json:"ips,omitempty"`
	Ports []Port   `json:"ports,omitempty"`
	// InitContainers and Containers are the names of its containers.
	InitContainers []string `json:"initContainers,omitempty"`
	Containers     []string `json:"containers,omitempty"`
	Restarts       int      `json:"restarts,omitempty"`
	// Seconds is how long after the start of the run its result was known.
	Seconds float64 `json:"seconds"`
	// Logs are the last lines of its containers, of pods that are not OK.
	Logs []Log `json:"logs,omitempty"`
	// Why is what `monopod why` prints about a pod that is neither OK nor has ended, line by line.
	Why []string `json:"why,omitempty"`

	// byOwner is set if the pod is judged with its owner.
	byOwner bool
}

// Key names the pod.
func (p Pod) Key() manifests.Key { return manifests.Key{Namespace: p.Namespace, Name: p.Name} }

// Port is one that a container has declared.
type Port struct {
	Name      string `json:"name,omitempty"`
	Container int32  `json:"containerPort"`
	// Host is 0 when there is none.
	Host     int32  `json:"hostPort,omitempty"`
	Protocol string `json:"protocol"`
}

// Log is the end of what a container has written.
type Log struct {
	Container string `json:"container"`
	Text      string `json:"text"`
}

// Workload is how a Deployment, Job and so on came out.
type Workload struct {
	Kind      string  `json:"kind"`
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	Result    Result  `json:"result"`
	Reason    string  `json:"reason,omitempty"`
	Seconds   float64 `json:"seconds"`
}

// Command is what was run beside the pods.
type Command struct {
	Args     []string `json:"args"`
	ExitCode int      `json:"exitCode"`
	Seconds  float64  `json:"seconds"`
}

// describe notes what does not depend on rules.
func describe(pod *corev1.Pod) Pod {
	p := Pod{Namespace: pod.Namespace, Name: pod.Name, Phase: string(pod.Status.Phase), IP: pod.Status.PodIP}
	if kind, name := controller(pod); kind != "" {
		p.Owner = kind + "/" + name
	}
	for _, ip := range pod.Status.PodIPs {
		p.IPs = append(p.IPs, ip.IP)
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		p.Restarts += int(c.RestartCount)
	}
	for _, c := range pod.Spec.InitContainers {
		p.InitContainers = append(p.InitContainers, c.Name)
	}
	for _, c := range pod.Spec.Containers {
		p.Containers = append(p.Containers, c.Name)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, o := range c.Ports {
			p.Ports = append(p.Ports, Port{Name: o.Name, Container: o.ContainerPort, Host: o.HostPort, Protocol: string(o.Protocol)})
		}
	}
	return p
}

// WriteJSON writes the report as one object.
func (r Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// junitCase is a test case as CI systems know it.
type junitCase struct {
	class, name string
	seconds     float64
	result      Result
	reason, out string
	// details are the text of a failure.
	details string
}

// cases are those of the report: one for each pod, each workload, each manifest that was refused, and the command.
func (r Report) cases() []junitCase {
	var all []junitCase
	for _, p := range r.Pods {
		var out strings.Builder
		for _, l := range p.Logs {
			fmt.Fprintf(&out, "--- container %s\n%s", l.Container, l.Text)
		}
		all = append(all, junitCase{p.Namespace, "pod/" + p.Name, p.Seconds, p.Result, p.Reason, out.String(), strings.Join(p.Why, "\n")})
	}
	for _, o := range r.Workloads {
		all = append(all, junitCase{o.Namespace, strings.ToLower(o.Kind) + "/" + o.Name, o.Seconds, o.Result, o.Reason, "", ""})
	}
	for _, m := range r.Refused {
		all = append(all, junitCase{"manifests", m.Where, 0, Failed, m.Text, "", ""})
	}
	if r.Reason != "" {
		all = append(all, junitCase{"monopod", "run", r.Seconds, r.Result, r.Reason, "", ""})
	}
	if c := r.Command; c != nil {
		result := OK
		if c.ExitCode != 0 {
			result = Failed
		}
		all = append(all, junitCase{"command", strings.Join(c.Args, " "), c.Seconds, result, fmt.Sprintf("exit code %d", c.ExitCode), "", ""})
	}
	return all
}

// WriteJUnit writes the report as CI systems read it. It is written by hand: encoding/xml would be a third of a
// megabyte in the program.
func (r Report) WriteJUnit(w io.Writer) error {
	cases, failures := r.cases(), 0
	var b strings.Builder
	for _, c := range cases {
		fmt.Fprintf(&b, "    <testcase classname=\"%s\" name=\"%s\" time=\"%.3f\">", escape(c.class), escape(c.name), c.seconds)
		if c.result != OK {
			failures++
			fmt.Fprintf(&b, "\n      <failure type=\"%s\" message=\"%s\">%s</failure>", escape(string(c.result)), escape(c.reason), escape(c.details))
		}
		if c.out != "" {
			fmt.Fprintf(&b, "\n      <system-out>%s</system-out>", escape(c.out))
		}
		b.WriteString("\n    </testcase>\n")
	}
	_, err := fmt.Fprintf(w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"monopod\" tests=\"%d\" failures=\"%d\" time=\"%.3f\">\n%s  </testsuite>\n</testsuites>\n",
		len(cases), failures, r.Seconds, b.String())
	return err
}

// escape makes text part of an XML document. What no document may hold, as colors of a terminal, becomes U+FFFD.
func escape(text string) string {
	clean := strings.Map(func(c rune) rune {
		if c == '\t' || c == '\n' || c == '\r' || c >= 0x20 && c <= 0xd7ff || c >= 0xe000 && c <= 0xfffd || c >= 0x10000 {
			return c
		}
		return '\ufffd'
	}, text)
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "\n", "&#10;", "\r", "&#13;", "\t", "&#9;").Replace(clean)
}
