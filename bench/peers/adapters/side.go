// The adapters' side of the drive for Go: see side.py, whose orders and lines are the same.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const size, atOnce = 100, 64

var url, lease = os.Getenv("PEERS_URL"), atoi(os.Getenv("PEERS_LEASE"))
var out *os.File

type item struct {
	body string
	due  time.Time
}

type order struct {
	Do              string
	First, Number   int
	Due, Apart      int64
	Rate, Near, Far float64
}

func atoi(text string) int { n, _ := strconv.Atoi(text); return n }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func got[T any](value T, err error) T {
	must(err)
	return value
}

func openOut() {
	out = got(os.OpenFile(os.Getenv("PEERS_OUT"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644))
}

func record(body string) {
	words := strings.SplitN(body, " ", 3)
	fmt.Fprintf(out, "%s %s %d\n", words[0], words[1], time.Now().UnixMicro())
}

func made(id int, due time.Time) item {
	text := fmt.Sprintf("%d %d ", id, due.UnixMilli())
	return item{text + strings.Repeat("x", size-len(text)), due}
}

func steady(one func(item), o order) {
	chance, start := rand.New(rand.NewSource(1)), time.Now()
	for n := 0; n < o.Number; n++ {
		time.Sleep(time.Until(start.Add(time.Duration(float64(n) / o.Rate * 1e9))))
		ahead := o.Near + chance.Float64()*(o.Far-o.Near)
		due := time.UnixMilli(time.Now().UnixMilli() + int64(ahead*1000))
		one(made(o.First+n, due))
	}
}

func callers(one func(item), items []item) {
	var all sync.WaitGroup
	following := make(chan item)
	for range atOnce {
		all.Go(func() {
			for it := range following {
				one(it)
			}
		})
	}
	for _, it := range items {
		following <- it
	}
	close(following)
	all.Wait()
}

// enqueuer takes orders until standard input ends; without `many` there is no call for many.
func enqueuer(one func(item), many func([]item)) {
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var o order
		must(json.Unmarshal(lines.Bytes(), &o))
		items := make([]item, o.Number)
		for n := range items {
			items[n] = made(o.First+n, time.UnixMilli(o.Due+int64(n)*o.Apart/1000))
		}
		start := time.Now()
		switch {
		case o.Do == "steady":
			steady(one, o)
		case o.Do == "single":
			for _, it := range items {
				one(it)
			}
		case o.Do == "bulk" && many != nil:
			many(items)
		default:
			callers(one, items)
		}
		fmt.Printf("{\"seconds\": %f}\n", time.Since(start).Seconds())
	}
}
