//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// logHas waits until the log of a pod has this line.
func (in *instance) logHas(pod, line string) {
	in.t.Helper()
	in.eventually("the log of "+pod+" has the line "+line, func() error {
		out, err := in.run("logs", pod)
		if err == nil && !strings.Contains("\n"+out, "\n"+line+"\n") {
			err = fmt.Errorf("log is %q", out)
		}
		return err
	})
}

// named is a sleeper with additional fields in its spec.
func named(name, script, spec string) string {
	return strings.Replace(sleeper(name, script), "spec:\n", "spec:\n  "+spec+"\n", 1)
}

func TestNamesOfAPodAreInItsKernelItsHostsFileAndItsResolver(t *testing.T) {
	in := newInstance(t)
	in.start()
	show := "echo kernel $(cat /proc/sys/kernel/hostname); grep svc /etc/hosts | cut -f2-; grep -v '^#' /etc/resolv.conf"
	in.put("db", named("db", show, "hostname: primary\n  subdomain: db"))
	in.put("fqdn", named("fqdn", show, "hostname: primary\n  subdomain: dbs\n  setHostnameAsFQDN: true"))
	in.put("other", named("other", show, "hostname: primary\n  subdomain: dbs\n  hostnameOverride: any.name.example"))
	in.put("own", named("own", show, "dnsPolicy: None\n  dnsConfig: {nameservers: [192.0.2.53], searches: [lan.example], options: [{name: ndots, value: \"3\"}]}"))
	in.put("long", named("long", show, "subdomain: "+strings.Repeat("d", 60)+"\n  setHostnameAsFQDN: true"))
	in.logHas("db", "kernel primary")
	in.logHas("db", "primary.db.default.svc.cluster.local\tprimary")
	in.logHas("fqdn", "kernel primary.dbs.default.svc.cluster.local")
	in.logHas("fqdn", "primary.dbs.default.svc.cluster.local\tprimary")
	in.logHas("other", "kernel any.name.example")
	for _, line := range []string{"search lan.example", "nameserver 192.0.2.53", "options ndots:3"} {
		in.logHas("own", line)
	}
	in.pod("long", "waits because its name is too long", func(p corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil &&
			strings.Contains(s[0].State.Waiting.Message, "is too long (64 characters is the max, 91 characters requested)")
	})
}

func TestBandwidthAnnotationsAreFollowedAlsoWhileThePodRuns(t *testing.T) {
	in := newInstance(t)
	in.start()
	limited := func(rate string) string {
		return strings.Replace(sleeper("slow", "true"), "metadata: {", `metadata: {annotations: {kubernetes.io/ingress-bandwidth: "`+rate+`"}, `, 1)
	}
	has := func(rate string) {
		t.Helper()
		in.eventually("a device is limited to "+rate, func() error {
			out, err := exec.Command("tc", "qdisc", "show").CombinedOutput()
			if err == nil && !strings.Contains(string(out), "rate "+rate) {
				err = fmt.Errorf("qdiscs are %s", out)
			}
			return err
		})
	}
	in.put("slow", limited("7777k"))
	before := in.ready("slow")
	has("7777Kbit")
	in.put("slow", limited("8888k"))
	has("8888Kbit")
	if after := in.ready("slow"); containerID(after, "c") != containerID(before, "c") {
		t.Error("a new limit restarted the container")
	}
}

func TestPodsHaveAnAddressOfEachFamilyWhenPodCIDRHasTwo(t *testing.T) {
	in := newInstance(t)
	conf, err := os.ReadFile(in.config)
	if err != nil {
		t.Fatal(err)
	}
	in.write(in.config, strings.Replace(string(conf), "podCIDR: "+in.subnet, "podCIDR: '"+in.subnet+",fd13:"+fmt.Sprintf("%x", os.Getpid()&0xffff)+"::/64'", 1))
	in.start()
	in.put("dual", sleeper("dual", "true"))
	p := in.ready("dual")
	if len(p.Status.PodIPs) != 2 || p.Status.PodIP != p.Status.PodIPs[0].IP ||
		!strings.HasPrefix(p.Status.PodIP, "10.") || !strings.HasPrefix(p.Status.PodIPs[1].IP, "fd13:") {
		t.Errorf("addresses are %+v", p.Status.PodIPs)
	}
	if out, err := exec.Command("/bin/busybox", "ping", "-6", "-c", "1", "-W", "5", p.Status.PodIPs[1].IP).CombinedOutput(); err != nil {
		t.Errorf("ping: %v: %s", err, out)
	}
}

// askers counts the pods of asks.
var askers atomic.Int32

// asks runs a script in a pod of its own, with that dnsPolicy, until a line of its output is the wanted one.
func (in *instance) asks(policy, namespace, script, want string) {
	in.t.Helper()
	name := fmt.Sprintf("ask-%d", askers.Add(1))
	text := sleeper(name, "until ("+script+") >/tmp/o 2>&1; cat /tmp/o; grep -qxF '"+want+"' /tmp/o; do sleep 0.2; done", "  dnsPolicy: "+policy)
	in.put(name, strings.Replace(text, "metadata: {", "metadata: {namespace: "+namespace+", ", 1))
	in.eventually(name+" prints "+want, func() error {
		out, err := in.run("logs", "-n", namespace, name)
		if err == nil && !strings.Contains("\n"+out, "\n"+want+"\n") {
			err = fmt.Errorf("log is %q", out)
		}
		return err
	})
	in.drop(name)
}

const web = "mkdir /www; hostname > /www/index.html; httpd -p 8080 -h /www"

func TestPodsFindEachOtherByName(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("web", sleeper("web", web))
	in.put("db", named("db", web, "hostname: primary\n  subdomain: dbs"))
	in.put("host", named("host", "true", "hostNetwork: true"))
	ips := map[string]string{}
	for _, name := range []string{"web", "db", "host"} {
		ips[name] = in.ready(name).Status.PodIP
	}
	in.asks("ClusterFirst", "default", "wget -qO- http://web:8080", "web")
	in.asks("ClusterFirst", "other", "wget -qO- http://web.default:8080", "web")
	in.asks("ClusterFirst", "default", "wget -qO- http://primary.dbs:8080", "primary")
	in.asks("ClusterFirst", "default", "nslookup -type=a host.default.svc.cluster.local | tail -n 2 | head -n 1", "Address: "+ips["host"])
	in.asks("ClusterFirst", "default", "nslookup "+ips["db"]+" | grep -o 'primary.*'", "primary.dbs.default.svc.cluster.local")
	in.asks("ClusterFirstWithHostNet\n  hostNetwork: true", "default", "wget -qO- http://web:8080", "web")

	// A name follows its pod, and is removed with it.
	in.put("web", named("web", web, "hostname: moved"))
	in.pod("web", "has another address", func(p corev1.Pod) bool { return isReady(p) && p.Status.PodIP != ips["web"] })
	in.asks("ClusterFirst", "default", "wget -qO- http://web:8080", "moved")
	in.drop("web")
	in.gone("web")
	in.asks("ClusterFirst", "default", "nslookup -type=a web.default.svc.cluster.local | grep -q NXDOMAIN && echo gone", "gone")

	// The agent starts again, and with it the name server; running pods still use it.
	in.kill9()
	in.start()
	in.asks("ClusterFirst", "default", "wget -qO- http://primary.dbs:8080", "primary")
}

func TestWithoutTheResolverPodsAskTheHosts(t *testing.T) {
	in := newInstance(t, "podDNS: 'off'")
	in.start()
	in.put("plain", sleeper("plain", "cat /etc/resolv.conf; echo end"))
	in.logHas("plain", "end")
	out, err := in.run("logs", "plain")
	if err != nil || strings.Contains(out, strings.TrimSuffix(in.subnet, "0/24")) {
		t.Errorf("%v: %s", err, out)
	}
}

func TestTwoInstancesAnswerForTheirOwnPodsOnly(t *testing.T) {
	one, two := newInstance(t), newInstance(t)
	one.start()
	two.start()
	for i, in := range []*instance{one, two} {
		in.put("web", named("web", web, fmt.Sprintf("hostname: of-%d", i+1)))
		in.ready("web")
	}
	one.asks("ClusterFirst", "default", "wget -qO- http://web:8080", "of-1")
	two.asks("ClusterFirst", "default", "wget -qO- http://web:8080", "of-2")
}
