package main

import (
	"net"
	"sync"
	"time"
)

// piece bounds a write at a pace, so that a pause is short.
const piece = 32 << 10

// pacer holds all connections of an attack together to a rate. The zero value has no limit.
type pacer struct {
	mutex sync.Mutex
	rate  float64 // bytes a second
	free  time.Time
}

// take waits until some bytes may be sent, and reports whether that is before the end.
func (p *pacer) take(bytes int, until time.Time) bool {
	if p.rate <= 0 {
		return time.Now().Before(until)
	}
	p.mutex.Lock()
	now := time.Now()
	if least := now.Add(-10 * time.Millisecond); p.free.Before(least) {
		p.free = least
	}
	p.free = p.free.Add(time.Duration(float64(bytes) / p.rate * float64(time.Second)))
	wait := p.free.Sub(now)
	p.mutex.Unlock()
	if now.Add(wait).After(until) {
		time.Sleep(time.Until(until))
		return false
	}
	if wait > time.Millisecond {
		time.Sleep(wait)
	}
	return time.Now().Before(until)
}

// lasting is a connection whose deadlines end with the attack; it counts what is sent, and keeps the pace.
type lasting struct {
	net.Conn
	a *attacker
}

func (l lasting) SetDeadline(at time.Time) error {
	if at.After(l.a.until) {
		at = l.a.until
	}
	return l.Conn.SetDeadline(at)
}

func (l lasting) Write(data []byte) (int, error) {
	for sent := 0; ; {
		part := data[sent:min(len(data), sent+piece)]
		if !l.a.pace.take(len(part), l.a.until) {
			return sent, errOver
		}
		n, err := l.Conn.Write(part)
		l.a.bytes.Add(int64(n))
		sent += n
		if err != nil || sent == len(data) {
			return sent, err
		}
	}
}
