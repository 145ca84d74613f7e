package names

import (
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// ttl is how many seconds an answer about our own names may be kept.
const ttl = 5

// plainUDP is how many bytes a client takes by UDP that does not say how many.
const plainUDP = 512

// query is a question that was understood.
type query struct {
	header   dnsmessage.Header
	question dnsmessage.Question
	// name is that of the question, lower case, without the dot at the end.
	name string
	// size is how large an answer by UDP may be; edns that the client said so.
	size int
	edns bool
}

// parseQuery reads a query. ok is false for messages that get no answer at all, such as answers and truncated headers. Otherwise code is
// the error to answer with.
func parseQuery(msg []byte) (q query, code dnsmessage.RCode, ok bool) {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || h.Response {
		return q, 0, false
	}
	q.header, q.size = h, plainUDP
	if h.OpCode != 0 {
		return q, dnsmessage.RCodeNotImplemented, true
	}
	all, err := p.AllQuestions()
	if err != nil || len(all) != 1 {
		return q, dnsmessage.RCodeFormatError, true
	}
	q.question = all[0]
	q.name = strings.ToLower(strings.TrimSuffix(q.question.Name.String(), "."))
	if p.SkipAllAnswers() == nil && p.SkipAllAuthorities() == nil {
		q.options(&p)
	}
	return q, dnsmessage.RCodeSuccess, true
}

// options looks for the size of a client's buffer.
func (q *query) options(p *dnsmessage.Parser) {
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			return
		}
		if h.Type == dnsmessage.TypeOPT {
			q.edns, q.size = true, max(plainUDP, int(h.Class))
			return
		}
		if p.SkipAdditional() != nil {
			return
		}
	}
}

// reply is an answer in the making.
type reply struct{ dnsmessage.Message }

// newReply answers a query with a code and nothing else yet.
func newReply(q query, code dnsmessage.RCode) *reply {
	r := &reply{}
	r.Header = dnsmessage.Header{
		ID: q.header.ID, Response: true, RecursionDesired: q.header.RecursionDesired, RecursionAvailable: true, RCode: code,
	}
	if q.question.Name.Length > 0 {
		r.Questions = []dnsmessage.Question{q.question}
	}
	if q.edns {
		h := dnsmessage.ResourceHeader{}
		if h.SetEDNS0(1232, dnsmessage.RCodeSuccess, false) == nil {
			r.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
		}
	}
	return r
}

// pack writes the answer in at most size bytes. Records that do not fit are left out, and the client is asked to use TCP.
func (r *reply) pack(size int) []byte {
	b, err := r.Pack()
	if err == nil && len(b) <= size {
		return b
	}
	r.Answers, r.Authorities = nil, nil
	r.Truncated = err == nil
	if err != nil {
		r.RCode = dnsmessage.RCodeServerFailure
	}
	if b, err = r.Pack(); err != nil {
		return nil
	}
	return b
}

func (r *reply) add(name string, kind dnsmessage.Type, body dnsmessage.ResourceBody) {
	n, err := dnsmessage.NewName(name)
	if err != nil {
		return
	}
	r.Answers = append(r.Answers, dnsmessage.Resource{
		Header: dnsmessage.ResourceHeader{Name: n, Type: kind, Class: dnsmessage.ClassINET, TTL: ttl}, Body: body,
	})
}

// addresses adds those of the wanted type.
func (r *reply) addresses(name string, wanted dnsmessage.Type, addrs []netip.Addr) {
	for _, a := range addrs {
		switch {
		case a.Is4() && asks(wanted, dnsmessage.TypeA):
			r.add(name, dnsmessage.TypeA, &dnsmessage.AResource{A: a.As4()})
		case a.Is6() && asks(wanted, dnsmessage.TypeAAAA):
			r.add(name, dnsmessage.TypeAAAA, &dnsmessage.AAAAResource{AAAA: a.As16()})
		}
	}
}

func asks(wanted, kind dnsmessage.Type) bool { return wanted == kind || wanted == dnsmessage.TypeALL }

// authority adds the record with the time for which a negative answer may be cached.
func (r *reply) authority(domain string) {
	zone, err := dnsmessage.NewName(domain + ".")
	ns, err2 := dnsmessage.NewName("ns.dns." + domain + ".")
	if err != nil || err2 != nil {
		return
	}
	r.Authorities = []dnsmessage.Resource{{
		Header: dnsmessage.ResourceHeader{Name: zone, Type: dnsmessage.TypeSOA, Class: dnsmessage.ClassINET, TTL: ttl},
		Body:   &dnsmessage.SOAResource{NS: ns, MBox: ns, Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, MinTTL: ttl},
	}}
}

// answer answers about a name that the zone owns. rotate shifts the order of several addresses, which spreads
// clients over them. A name that stands for one outside the zone is returned as alias: its answers are still to
// be added.
func (z *Zone) answer(q query, rotate int) (r *reply, alias string) {
	r = newReply(q, dnsmessage.RCodeSuccess)
	r.Authoritative = true
	rec, exists := z.record(q.name)
	if !exists {
		r.RCode = dnsmessage.RCodeNameError
	}
	owner := q.question.Name.String()
	if rec.alias != "" {
		r.alias(owner, rec.alias)
		if !owns(z.domain, rec.alias) {
			return r, rec.alias
		}
		owner = rec.alias + "."
		rec, _ = z.record(rec.alias)
	}
	r.addresses(owner, q.question.Type, rotated(rec.addrs, rotate))
	if asks(q.question.Type, dnsmessage.TypeSRV) {
		r.services(owner, rec.ports)
	}
	if len(r.Answers) == 0 {
		r.authority(z.domain)
	}
	return r, ""
}

func (r *reply) alias(owner, target string) {
	if name, err := dnsmessage.NewName(target + "."); err == nil {
		r.add(owner, dnsmessage.TypeCNAME, &dnsmessage.CNAMEResource{CNAME: name})
	}
}

// services adds SRV records.
func (r *reply) services(owner string, ports []port) {
	for _, p := range ports {
		if target, err := dnsmessage.NewName(p.target + "."); err == nil {
			r.add(owner, dnsmessage.TypeSRV, &dnsmessage.SRVResource{
				Priority: 0, Weight: uint16(100 / len(ports)), Port: p.number, Target: target,
			})
		}
	}
}

// rotated returns addrs in an order that begins at another one for each n.
func rotated(addrs []netip.Addr, n int) []netip.Addr {
	if len(addrs) < 2 {
		return addrs
	}
	n %= len(addrs)
	return slices.Concat(addrs[n:], addrs[:n])
}

// pointer answers for the name of an address of the pods' subnets.
func (z *Zone) pointer(q query, addr netip.Addr) *reply {
	name, known := z.reverse[addr]
	if !known {
		r := newReply(q, dnsmessage.RCodeNameError)
		r.Authoritative = true
		r.authority(z.domain)
		return r
	}
	r := newReply(q, dnsmessage.RCodeSuccess)
	r.Authoritative = true
	if target, err := dnsmessage.NewName(name + "."); err == nil && asks(q.question.Type, dnsmessage.TypePTR) {
		r.add(q.question.Name.String(), dnsmessage.TypePTR, &dnsmessage.PTRResource{PTR: target})
	}
	return r
}
