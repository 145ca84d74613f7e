package services

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/internal/atomicfile"
	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner/service"
)

// readMemory reads the addresses that Services had.
func (n *Manager) readMemory() {
	n.mu.Lock()
	defer n.mu.Unlock()
	b, err := atomicfile.Read(n.file, atomicfile.MaxState)
	if err == nil {
		err = json.Unmarshal(b, &n.memory)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.cfg.Log.Warn("cannot read services.json; Services may get new addresses", "err", err)
		n.memory = service.Memory{}
	}
}

// errOverlap is an error of the configuration.
var errOverlap = errors.New("set serviceSubnet to another range, or to off")

// withAPI adds the Service of the Kubernetes API, unless one is defined.
func (n *Manager) withAPI(all []*corev1.Service) []*corev1.Service {
	if n.cfg.API == nil || len(n.cfg.API()) == 0 || slices.ContainsFunc(all, func(s *corev1.Service) bool { return s.Namespace == corev1.NamespaceDefault && s.Name == apiName }) {
		return all
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rules == nil {
		return all
	}
	if n.api == nil {
		n.api = &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: apiName},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, SessionAffinity: corev1.ServiceAffinityNone,
				Ports: []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(443)}},
			},
		}
	}
	return append(slices.Clip(all), n.api)
}

// current returns the Services of now with their addresses.
func (n *Manager) current() []*corev1.Service {
	all, known := n.cfg.State.Services()
	return n.assign(all, known)
}

// assign returns Services with their addresses. Before they are known, nothing is remembered: all others would count as removed.
func (n *Manager) assign(all []*corev1.Service, known bool) []*corev1.Service {
	all = n.withAPI(all)
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.assignLocked(all, known)
}

func (n *Manager) assignLocked(all []*corev1.Service, known bool) []*corev1.Service {
	if n.byKey != nil && known == n.known && slices.Equal(n.from, all) {
		return n.given
	}
	n.known = known
	n.from, n.byKey, n.variables = all, map[manifests.Key]*corev1.Service{}, variables{}
	var notes []service.Note
	if n.rules == nil {
		n.given = make([]*corev1.Service, 0, len(all))
		for _, s := range all {
			shown := withoutAddress(s, n.lacks != "")
			n.given = append(n.given, shown)
			if n.lacks != "" && service.HasIP(shown) {
				notes = append(notes, service.Note{Service: s.Namespace + "/" + s.Name, Text: "no cluster IP, its name resolves to its pods: " + n.lacks})
			}
		}
	} else {
		before := n.memory
		n.config.Origins = n.cfg.State.ServiceOrigins()
		var after service.Memory
		n.given, after, notes = service.Assign(all, before, n.config)
		if known {
			n.memory = after
		}
		if !before.Equal(n.memory) {
			n.saveLocked()
		}
	}
	for _, s := range n.given {
		n.byKey[manifests.Key{Namespace: s.Namespace, Name: s.Name}] = s
	}
	if known {
		n.noteLocked(notes)
	}
	return n.given
}

// withoutAddress returns a Service that is only a DNS name for its pods: a copy if it is to be changed further.
func withoutAddress(s *corev1.Service, further bool) *corev1.Service {
	if s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.ClusterIP == "" && !further {
		return s
	}
	s = s.DeepCopy()
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil
	return s
}

func (n *Manager) remembered() service.Memory {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.memory
}

// readNode reads the addresses of the machine, which Services of type LoadBalancer have.
func (n *Manager) readNode() {
	if n.active() == nil || n.cfg.Addresses == nil {
		return
	}
	texts, err := n.cfg.Addresses()
	if err != nil {
		return
	}
	var node []netip.Addr
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			node = append(node, a.Unmap())
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(node, n.config.Node) {
		n.config.Node, n.byKey = node, nil
	}
}

// noteLocked writes notes into the status of the Services that were assigned last, and logs each once. That there are no addresses has been logged.
func (n *Manager) noteLocked(notes []service.Note) {
	now := map[service.Note]metav1.Time{}
	for _, note := range notes {
		since, ok := n.noted[note]
		if !ok {
			since = metav1.Now()
		}
		if !ok && n.rules != nil {
			n.cfg.Log.Warn("requested Service address or port not available", "service", note.Service, "reason", note.Text)
		}
		now[note] = since
		namespace, name, _ := strings.Cut(note.Service, "/")
		model.Refuse(n.byKey[manifests.Key{Namespace: namespace, Name: name}], note.Text, since)
	}
	n.noted = now
}

func (n *Manager) saveLocked() {
	b, err := json.Marshal(n.memory)
	if err == nil {
		err = atomicfile.Write(n.file, b, 0o600)
	}
	if err != nil {
		n.cfg.Log.Warn("the addresses of Services cannot be stored: they may change with a restart", "err", err)
	}
}

// Assigned returns all Services with their allocated addresses. The map and the Services are shared and must not be modified. A call compares all
// Services with those of the last one: look up several in one result.
func (n *Manager) Assigned() map[manifests.Key]*corev1.Service {
	all, known := n.cfg.State.Services()
	all = n.withAPI(all)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.assignLocked(all, known)
	return n.byKey
}

// Allocated returns a Service with its allocated addresses, nil if there is no such Service.
func (n *Manager) Allocated(namespace, name string) *corev1.Service {
	return n.Assigned()[manifests.Key{Namespace: namespace, Name: name}]
}

// Refused returns why a client cannot write a Service: it asks for what another one has, unless that is not of the local space and gives it up, or for what
// no Service can have.
func (n *Manager) Refused(s *corev1.Service) field.ErrorList {
	given := n.current()
	n.mu.Lock()
	defer n.mu.Unlock()
	if o := n.config.Origins; o != nil && o.Spaces.Of(config.SourceApplied) == manifests.LocalSpace {
		given = slices.DeleteFunc(slices.Clone(given), func(other *corev1.Service) bool { return !o.Offers(other) })
	}
	return service.Refused(s, given, n.config)
}

// APIAddress returns the address and port of the Service of the Kubernetes API; invalid: there is none.
func (n *Manager) APIAddress() netip.AddrPort {
	s := n.Allocated(corev1.NamespaceDefault, apiName)
	n.mu.Lock()
	defer n.mu.Unlock()
	if s == nil || n.api == nil || len(s.Spec.Ports) != 1 || s.Spec.Ports[0].Port != 443 {
		return netip.AddrPort{}
	}
	ip, err := netip.ParseAddr(s.Spec.ClusterIP)
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, 443)
}

// Variables returns the environment variables of the Services in a namespace that pods of a source see. The map is shared and must not be
// modified.
func (n *Manager) Variables(source, namespace string) map[string]string {
	withoutAPI := n.APIAddress().IsValid() // only pods that use the API get its address
	all, known := n.cfg.State.Services()
	all = n.withAPI(all)
	n.mu.Lock()
	defer n.mu.Unlock()
	given := n.assignLocked(all, known)
	if v := &n.variables; v.all == nil || v.source != source || v.namespace != namespace || v.withoutAPI != withoutAPI {
		seen := slices.DeleteFunc(slices.Clone(given), func(s *corev1.Service) bool {
			return withoutAPI && s.Namespace == corev1.NamespaceDefault && s.Name == apiName || !n.config.Origins.Shows(s, source)
		})
		n.variables = variables{source, namespace, withoutAPI, service.Env(seen, namespace)}
	}
	return n.variables.all
}
