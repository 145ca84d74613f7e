package trial

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// Report is what is told about a run.
type Report struct {
	Result Result `json:"result"`
	// Reason says why the run did not come to pods at all, or what is wrong besides them.
	Reason  string  `json:"reason,omitempty"`
	Seconds float64 `json:"seconds"`
	Run     Run     `json:"run"`
	Pods    []Pod   `json:"pods"`
	// Workloads are Deployments, Jobs and so on.
	Workloads []Workload `json:"workloads,omitempty"`
	// Refused are the problems of manifests, one line each.
	Refused []string `json:"refused,omitempty"`
	// Command is what `up` ran; nil: nothing.
	Command *Command `json:"command,omitempty"`
}

// Run is where the pods are.
type Run struct {
	// Number names the run.
	Number int `json:"number"`
	// Socket is that of the run's agent.
	Socket string `json:"socket,omitempty"`
	Subnet string `json:"subnet,omitempty"`
	// Log is the file with what the agent says.
	Log string `json:"log,omitempty"`
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

	// byOwner says that it is judged with its owner.
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

type (
	junitSuites struct {
		XMLName xml.Name   `xml:"testsuites"`
		Suite   junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Time    string        `xml:"time,attr"`
		Failure *junitFailure `xml:"failure,omitempty"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitFailure struct {
		Type    string `xml:"type,attr"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes the report as CI systems read it: a test case for each pod, each workload, each manifest that was
// refused, and the command.
func (r Report) WriteJUnit(w io.Writer) error {
	s := junitSuite{Name: "monopod", Time: junitTime(r.Seconds)}
	add := func(c junitCase) {
		s.Tests++
		if c.Failure != nil {
			s.Failures++
		}
		s.Cases = append(s.Cases, c)
	}
	for _, p := range r.Pods {
		c := junitCase{Class: p.Namespace, Name: "pod/" + p.Name, Time: junitTime(p.Seconds), Failure: failure(p.Result, p.Reason)}
		var out strings.Builder
		for _, l := range p.Logs {
			fmt.Fprintf(&out, "--- container %s\n%s", l.Container, l.Text)
		}
		c.Out = out.String()
		add(c)
	}
	for _, o := range r.Workloads {
		add(junitCase{Class: o.Namespace, Name: strings.ToLower(o.Kind) + "/" + o.Name, Time: junitTime(o.Seconds), Failure: failure(o.Result, o.Reason)})
	}
	for _, text := range r.Refused {
		add(junitCase{Class: "manifests", Name: place(text), Time: junitTime(0), Failure: failure(Failed, text)})
	}
	if r.Reason != "" {
		add(junitCase{Class: "monopod", Name: "run", Time: junitTime(r.Seconds), Failure: failure(r.Result, r.Reason)})
	}
	if c := r.Command; c != nil {
		result := OK
		if c.ExitCode != 0 {
			result = Failed
		}
		add(junitCase{Class: "command", Name: strings.Join(c.Args, " "), Time: junitTime(c.Seconds), Failure: failure(result, fmt.Sprintf("exit code %d", c.ExitCode))})
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(junitSuites{Suite: s}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// place is the file:line:column in front of a message.
func place(text string) string {
	where, _, _ := strings.Cut(text, ": ")
	return where
}

func junitTime(s float64) string { return fmt.Sprintf("%.3f", s) }

func failure(result Result, reason string) *junitFailure {
	if result == OK {
		return nil
	}
	return &junitFailure{Type: string(result), Message: reason, Text: reason}
}
