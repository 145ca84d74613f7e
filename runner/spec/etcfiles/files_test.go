package etcfiles

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/runner/spec/spectest"
)

func TestHostname(t *testing.T) {
	long := strings.Repeat("a", 62)
	tests := []struct {
		name string
		pod  func(*corev1.Pod)
		want string
		err  string
	}{
		{name: "the pod's name", want: "web"},
		{name: "spec.hostname", pod: func(p *corev1.Pod) { p.Spec.Hostname = "db" }, want: "db"},
		{name: "the machine's in the host network", pod: func(p *corev1.Pod) { p.Spec.HostNetwork, p.Spec.Hostname = true, "db" }, want: "node1"},
		{name: "a long name is cut", pod: func(p *corev1.Pod) { p.Name = long + "bcd" }, want: long + "b"},
		{name: "a cut name ends in a letter", pod: func(p *corev1.Pod) { p.Name = long + "-.c" }, want: long},
		{name: "a name of dots cannot be cut", pod: func(p *corev1.Pod) { p.Name = strings.Repeat(".", 64) }, err: "was invalid"},
		{name: "a subdomain is not part of it", pod: func(p *corev1.Pod) { p.Spec.Subdomain = "sub" }, want: "web"},
		{
			name: "the qualified name if asked", want: "web.sub.default.svc.cluster.local",
			pod: func(p *corev1.Pod) { p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = "sub", new(true) },
		},
		{name: "asked without subdomain", pod: func(p *corev1.Pod) { p.Spec.SetHostnameAsFQDN = new(true) }, want: "web"},
		{
			name: "a qualified name that is too long",
			pod: func(p *corev1.Pod) {
				p.Name, p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = "a2345678901234567890123456789012345", "sub", new(true)
			},
			err: "failed to construct FQDN from pod hostname and cluster domain, FQDN a2345678901234567890123456789012345.sub.default.svc.cluster.local" +
				" is too long (64 characters is the max, 65 characters requested)",
		},
		{name: "hostnameOverride", pod: func(p *corev1.Pod) { p.Spec.HostnameOverride = new("a.b.example"); p.Spec.Hostname = "x" }, want: "a.b.example"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := spectest.Pod(nil)
			if tt.pod != nil {
				tt.pod(pod)
			}
			got, err := Hostname(pod, "node1", "cluster.local")
			if got != tt.want || (err == nil) != (tt.err == "") || (err != nil && !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("Hostname = %q, %v, want %q, %s", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestHostsFile(t *testing.T) {
	const local = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n" +
		"fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
	aliases := []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"a", "b"}}, {IP: "192.0.2.2", Hostnames: []string{"c"}}}
	const aliasText = "\n# Entries added by HostAliases.\n192.0.2.1\ta\tb\n192.0.2.2\tc\n"
	ips := []string{"10.1.0.5", "fd00::5"}
	tests := []struct {
		name   string
		pod    func(*corev1.Pod)
		domain string
		want   string
	}{
		{name: "one line per address", want: "# Kubernetes-managed hosts file.\n" + local + "10.1.0.5\tweb\nfd00::5\tweb\n"},
		{
			name: "with a subdomain the qualified name first", domain: "cluster.local",
			pod: func(p *corev1.Pod) { p.Spec.Subdomain = "sub" },
			want: "# Kubernetes-managed hosts file.\n" + local +
				"10.1.0.5\tweb.sub.default.svc.cluster.local\tweb\nfd00::5\tweb.sub.default.svc.cluster.local\tweb\n",
		},
		{
			name: "without a cluster domain no dot at the end",
			pod:  func(p *corev1.Pod) { p.Spec.Subdomain = "sub" },
			want: "# Kubernetes-managed hosts file.\n" + local + "10.1.0.5\tweb.sub.default.svc\tweb\nfd00::5\tweb.sub.default.svc\tweb\n",
		},
		{
			name: "aliases", pod: func(p *corev1.Pod) { p.Spec.HostAliases = aliases },
			want: "# Kubernetes-managed hosts file.\n" + local + "10.1.0.5\tweb\nfd00::5\tweb\n" + aliasText,
		},
		{
			name: "the machine's file in the host network",
			pod:  func(p *corev1.Pod) { p.Spec.HostNetwork, p.Spec.HostAliases = true, aliases },
			want: "# Kubernetes-managed hosts file (host network).\n127.0.0.1 me\n" + aliasText,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := spectest.Pod(nil)
			if tt.pod != nil {
				tt.pod(pod)
			}
			got, err := HostsFile(Hosts{Pod: pod, IPs: ips, ClusterDomain: tt.domain, NodeFile: "127.0.0.1 me\n"})
			if err != nil || got != tt.want {
				t.Errorf("HostsFile: %v\n%s\nwant\n%s", err, got, tt.want)
			}
		})
	}
}

func TestResolvConf(t *testing.T) {
	const hostFile = "# machine\nnameserver 192.0.2.53\nsearch old.example\nsearch example.com. . lan\noptions timeout:1 rotate\noptions timeout:2\n"
	const host = "search example.com lan\nnameserver 192.0.2.53\noptions timeout:2 rotate\n"
	const cluster = "search default.svc.cluster.local svc.cluster.local cluster.local example.com lan\nnameserver 10.0.0.10\noptions ndots:5\n"
	tests := []struct {
		name     string
		policy   corev1.DNSPolicy
		config   *corev1.PodDNSConfig
		edit     func(*DNS)
		want     string
		warnings []string
	}{
		{name: "Default is the machine's", policy: corev1.DNSDefault, want: host},
		{name: "ClusterFirst is the cluster's", policy: corev1.DNSClusterFirst, want: cluster},
		{
			name: "ClusterFirst without cluster DNS is the machine's, silently", policy: corev1.DNSClusterFirst,
			edit: func(d *DNS) { d.ClusterDNS = nil }, want: host,
		},
		{
			name: "ClusterFirst in the host network is the machine's", policy: corev1.DNSClusterFirst,
			edit: func(d *DNS) { d.Pod.Spec.HostNetwork = true }, want: host,
		},
		{
			name: "ClusterFirstWithHostNet is the cluster's in the host network", policy: corev1.DNSClusterFirstWithHostNet,
			edit: func(d *DNS) { d.Pod.Spec.HostNetwork = true }, want: cluster,
		},
		{
			name: "ClusterFirstWithHostNet without cluster DNS says so", policy: corev1.DNSClusterFirstWithHostNet,
			edit: func(d *DNS) { d.ClusterDNS = nil }, want: host,
			warnings: []string{"dnsPolicy ClusterFirstWithHostNet works like Default: clusterDNS is not configured"},
		},
		{
			name: "a cluster without domain keeps the machine's searches", policy: corev1.DNSClusterFirst,
			edit: func(d *DNS) { d.ClusterDomain = "" }, want: "search example.com lan\nnameserver 10.0.0.10\noptions ndots:5\n",
		},
		{
			name: "None is what dnsConfig says", policy: corev1.DNSNone,
			config: &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}, Searches: []string{"x"}, Options: []corev1.PodDNSConfigOption{{Name: "edns0"}}},
			want:   "search x\nnameserver 1.1.1.1\noptions edns0\n",
		},
		{
			name: "dnsConfig adds, without repeating, and its options win", policy: corev1.DNSDefault,
			config: &corev1.PodDNSConfig{
				Nameservers: []string{"192.0.2.53", "1.1.1.1"}, Searches: []string{"lan", "more"},
				Options: []corev1.PodDNSConfigOption{{Name: "timeout", Value: new("9")}, {Name: "edns0"}},
			},
			want: "search example.com lan more\nnameserver 192.0.2.53\nnameserver 1.1.1.1\noptions timeout:9 rotate edns0\n",
		},
		{
			name: "no resolvConf is the loopback interface", policy: corev1.DNSDefault,
			edit: func(d *DNS) { d.HostFile = nil }, want: "search .\nnameserver 127.0.0.1\n",
		},
		{
			name: "no resolvConf on a machine with IPv6 only", policy: corev1.DNSDefault,
			edit: func(d *DNS) { d.HostFile, d.NodeIPs = nil, []string{"fd00::1", "fd00::2"} }, want: "search .\nnameserver ::1\n",
		},
		{
			name: "no resolvConf with cluster DNS", policy: corev1.DNSClusterFirst,
			edit: func(d *DNS) { d.HostFile = nil },
			want: "search default.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.0.0.10\noptions ndots:5\n",
		},
		{
			name: "an empty resolv.conf gives an empty one", policy: corev1.DNSDefault,
			edit: func(d *DNS) { d.HostFile = new("") }, want: "",
		},
		{
			name: "a nameserver line without address is left out", policy: corev1.DNSDefault,
			edit: func(d *DNS) { d.HostFile = new("nameserver\nnameserver 192.0.2.1") }, want: "nameserver 192.0.2.1\n",
			warnings: []string{"the machine's resolv.conf has a nameserver line without an address"},
		},
		{
			name: "no more than three nameservers", policy: corev1.DNSNone,
			config: &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"}},
			want:   "nameserver 1.1.1.1\nnameserver 2.2.2.2\nnameserver 3.3.3.3\n",
			warnings: []string{
				"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 1.1.1.1 2.2.2.2 3.3.3.3",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := spectest.Pod(func(p *corev1.Pod, _ *corev1.Container) { p.Spec.DNSPolicy, p.Spec.DNSConfig = tt.policy, tt.config })
			d := DNS{Pod: pod, HostFile: ptr.To(hostFile), ClusterDNS: []string{"10.0.0.10"}, ClusterDomain: "cluster.local"}
			if tt.edit != nil {
				tt.edit(&d)
			}
			got, warnings := ResolvConf(d)
			if got != tt.want || !slices.Equal(warnings, tt.warnings) {
				t.Errorf("ResolvConf:\n%s%v\nwant\n%s%v", got, warnings, tt.want, tt.warnings)
			}
		})
	}
}

func TestResolvConfSearchLimits(t *testing.T) {
	conf := func(searches ...string) (string, []string) {
		return ResolvConf(DNS{Pod: spectest.Pod(func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.DNSPolicy, p.Spec.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Searches: searches}
		})})
	}
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("d%d", i))
	}
	text, warnings := conf(many...)
	if len(warnings) != 1 || len(strings.Fields(text)) != 33 {
		t.Errorf("40 domains: %d words, warnings %v", len(strings.Fields(text)), warnings)
	}
	var wide []string
	for i := range 20 {
		wide = append(wide, fmt.Sprintf("%02d%s", i, strings.Repeat("x", 198)))
	}
	text, warnings = conf(wide...)
	if line := strings.TrimPrefix(strings.TrimSpace(text), "search "); len(warnings) != 1 || len(line) != 10*201-1 {
		t.Errorf("20 domains of 200: a line of %d, warnings %v", len(line), warnings)
	}
	text, warnings = conf(strings.Repeat("y", 254), "ok")
	if text != "search ok\n" || len(warnings) != 1 {
		t.Errorf("a domain of 254: %q, warnings %v", text, warnings)
	}
}
