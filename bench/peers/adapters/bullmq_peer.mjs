// BullMQ: addBulk in groups of 1,000, a worker process with 100 jobs at once, nothing kept.
import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { enqueuer, lease, record, url } from './side.mjs';

const NAME = 'peers';
const connection = new Redis(url, { maxRetriesPerRequest: null });
const options = (due) => ({
  delay: Math.max(0, due - Date.now()),
  removeOnComplete: true,
  removeOnFail: true,
});

if (process.argv[2] === 'worker') {
  const held = lease ? { lockDuration: lease * 1000, stalledInterval: lease * 1000 } : {};
  new Worker(NAME, async (job) => record(job.data), { connection, concurrency: 100, ...held });
} else {
  const queue = new Queue(NAME, { connection });
  await queue.waitUntilReady();
  const one = (body, due) => queue.add('handle', body, options(due));
  const many = async (items) => {
    for (let start = 0; start < items.length; start += 1000) {
      const jobs = items.slice(start, start + 1000);
      await queue.addBulk(jobs.map(([data, due]) => ({ name: 'handle', data, opts: options(due) })));
    }
  };
  await enqueuer(one, many);
}
