package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"monopod/e2e/corpus"
	"monopod/internal/model"
	"monopod/internal/testfiles"
	"monopod/runner/service"
)

// corpusServices has one line per Service of the corpus: its file and name, type, ports as PORT[/PROTOCOL][>TARGET][@NODEPORT], and the other
// fields that matter for traffic.
const corpusServices = "testdata/corpus-services.tsv"

var someService = regexp.MustCompile(`"?kind"?:\s*"?Service"?`)

// TestServicesOfOthersAreKnown compares corpusServices with the corpus.
func TestServicesOfOthersAreKnown(t *testing.T) {
	lines := []string{"file\tservice\ttype\tports\tmore"}
	for _, f := range corpus.Open(t) {
		for _, text := range betweenDocuments.Split(string(f.Data), -1) {
			if !someService.MatchString(text) {
				continue
			}
			var doc struct {
				corev1.Service
				Items []json.RawMessage `json:"items"`
			}
			if yaml.Unmarshal([]byte(text), &doc) != nil {
				continue
			}
			all := []corev1.Service{doc.Service}
			for _, item := range doc.Items {
				var s corev1.Service
				if json.Unmarshal(item, &s) == nil {
					all = append(all, s)
				}
			}
			for i := range all {
				if all[i].Kind == "Service" && all[i].APIVersion == "v1" {
					lines = append(lines, f.Name+"\t"+serviceLine(&all[i]))
				}
			}
		}
	}
	testfiles.Compare(t, corpusServices, strings.Join(lines, "\n")+"\n")
}

func serviceLine(s *corev1.Service) string {
	var ports, more []string
	for _, p := range s.Spec.Ports {
		text := strconv.Itoa(int(p.Port))
		if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
			text += "/" + string(p.Protocol)
		}
		if p.TargetPort != (intstr.IntOrString{}) {
			text += ">" + p.TargetPort.String()
		}
		if p.NodePort != 0 {
			text += "@" + strconv.Itoa(int(p.NodePort))
		}
		ports = append(ports, text)
	}
	headless := ""
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		headless = corev1.ClusterIPNone
	}
	families := ""
	if s.Spec.IPFamilyPolicy != nil {
		families = string(*s.Spec.IPFamilyPolicy)
	}
	for _, field := range [][2]string{
		{"clusterIP", headless},
		{"externalName", s.Spec.ExternalName},
		{"externalTrafficPolicy", string(s.Spec.ExternalTrafficPolicy)},
		{"ipFamilyPolicy", families},
		{"sessionAffinity", string(s.Spec.SessionAffinity)},
	} {
		if field[1] != "" {
			more = append(more, field[0]+"="+field[1])
		}
	}
	return strings.Join([]string{s.Name, cmp.Or(string(s.Spec.Type), "ClusterIP"), cmp.Or(strings.Join(ports, " "), "-"), cmp.Or(strings.Join(more, " "), "-")}, "\t")
}

// serviceOfLine returns the Service of a line, with a selector of its own; two Services of a file may have the same name.
func serviceOfLine(t *testing.T, n int, line string) *corev1.Service {
	t.Helper()
	cells := strings.Split(line, "\t")
	if len(cells) != 5 {
		t.Fatalf("line %d has %d cells", n, len(cells))
	}
	s := &corev1.Service{}
	s.Namespace, s.Name = "default", fmt.Sprintf("s%d-%s", n, cells[1])
	s.Spec.Type, s.Spec.Selector = corev1.ServiceType(cells[2]), map[string]string{"app": s.Name}
	for text := range strings.FieldsSeq(strings.Trim(cells[3], "-")) {
		text, node, _ := strings.Cut(text, "@")
		text, target, _ := strings.Cut(text, ">")
		number, protocol, _ := strings.Cut(text, "/")
		port, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		p := corev1.ServicePort{Port: int32(port), Protocol: corev1.Protocol(protocol)}
		if target != "" {
			p.TargetPort = intstr.Parse(target)
		}
		if node != "" {
			p.NodePort = intstr.Parse(node).IntVal
		}
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	for field := range strings.FieldsSeq(strings.Trim(cells[4], "-")) {
		switch name, value, _ := strings.Cut(field, "="); name {
		case "clusterIP":
			s.Spec.ClusterIP = value
		case "externalName":
			s.Spec.ExternalName = value
		case "externalTrafficPolicy":
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicy(value)
		case "ipFamilyPolicy":
			s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicy(value))
		case "sessionAffinity":
			s.Spec.SessionAffinity = corev1.ServiceAffinity(value)
		default:
			t.Fatalf("line %d: unknown field %q", n, field)
		}
	}
	return s
}

// backendOf returns a ready pod that a Service selects, with a number for each name of a port.
func backendOf(s *corev1.Service, ip string) (pod *corev1.Pod, targets []uint16) {
	pod = &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	pod.Namespace, pod.Name, pod.Labels = s.Namespace, s.Name, s.Spec.Selector
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	for i, p := range s.Spec.Ports {
		target := uint16(cmp.Or(p.TargetPort.IntVal, p.Port))
		if name := p.TargetPort.StrVal; name != "" {
			target = uint16(20000 + i)
			pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, corev1.ContainerPort{Name: name, ContainerPort: int32(target), Protocol: p.Protocol})
		}
		targets = append(targets, target)
	}
	return pod, targets
}

// TestServicesOfOthersLeadToTheirTargets: each Service of the corpus with a selector gets rules that lead each of its ports to the target port
// of its pod, at its cluster IP, its node port and, for a load balancer, the address of the node.
func TestServicesOfOthersLeadToTheirTargets(t *testing.T) {
	data, err := os.ReadFile(filepath.FromSlash(corpusServices))
	if err != nil {
		t.Fatal(err)
	}
	var all []*corev1.Service
	var pods []*corev1.Pod
	targets := map[string][]uint16{}
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n")[1:] {
		s := serviceOfLine(t, i, line)
		pod, numbers := backendOf(s, fmt.Sprintf("10.87.0.%d", i+2))
		all, pods, targets[s.Name] = append(all, s), append(pods, pod), numbers
	}
	node := netip.MustParseAddr("192.0.2.7")
	given, memory, notes := service.Assign(all, service.Memory{}, service.Config{Instance: "one", Node: []netip.Addr{node}, Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}})
	// Two load balancers of different origins have port 80: the second one does not get the address of the node.
	if len(notes) != 1 || !strings.Contains(notes[0].Text, "port 80/tcp is not opened there") {
		t.Errorf("%v", notes)
	}
	planned := map[service.Frontend]service.Port{}
	for _, p := range service.Plan(model.Endpoints{Services: given, Pods: pods}, memory).Ports {
		planned[p.Frontend] = p
	}
	ports, differ := 0, 0
	for _, s := range given {
		if s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.Type == corev1.ServiceTypeExternalName {
			if rules := service.Plan(model.Endpoints{Services: []*corev1.Service{s}, Pods: pods}, memory).Ports; len(rules) > 0 {
				t.Errorf("%s has rules without a cluster IP: %v", s.Name, rules)
			}
			continue
		}
		pod := pods[slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Name == s.Name })]
		to := netip.MustParseAddr(pod.Status.PodIPs[0].IP)
		for i, p := range s.Spec.Ports {
			ports++
			if int32(targets[s.Name][i]) != p.Port {
				differ++
			}
			for _, at := range frontends(s, &p, node) {
				got, ok := planned[at]
				if want := netip.AddrPortFrom(to, targets[s.Name][i]); !ok || len(got.To) != 1 || got.To[0] != want {
					t.Errorf("%s: %v leads to %v, want %v", s.Name, at, got.To, want)
				}
			}
		}
	}
	if len(all) < 50 || ports < 70 || differ < 15 {
		t.Errorf("only %d Services with %d ports, of which %d differ from their target", len(all), ports, differ)
	}
	t.Logf("%d Services with %d ports, of which %d differ from their target", len(all), ports, differ)
}

// frontends returns where a port of a Service is reached. Of load balancers with the same port, only the first one has that of the node.
func frontends(s *corev1.Service, p *corev1.ServicePort, node netip.Addr) []service.Frontend {
	protocol := strings.ToLower(string(p.Protocol))
	out := []service.Frontend{{Protocol: protocol, Addr: netip.MustParseAddr(s.Spec.ClusterIP), Port: uint16(p.Port)}}
	if s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		out = append(out, service.Frontend{Protocol: protocol, Addr: netip.IPv4Unspecified(), Port: uint16(p.NodePort)})
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && p.Protocol == corev1.ProtocolUDP {
		out = append(out, service.Frontend{Protocol: protocol, Addr: node, Port: uint16(p.Port)})
	}
	return out
}
