// BullMQ's job schedulers: each worker makes the next job of a rule as it takes one.
import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { record, rules, url } from './side.mjs';

const NAME = 'recurring';
const connection = new Redis(url, { maxRetriesPerRequest: null });

if (process.argv[2] === 'put') {
  const queue = new Queue(NAME, { connection });
  const kept = { removeOnComplete: true, removeOnFail: true };
  for (let rule = 0; rule < rules; rule += 1) {
    await queue.upsertJobScheduler(`${rule}`, { pattern: '* * * * *', tz: 'UTC' }, { name: 'fire', opts: kept });
  }
  await queue.close();
  connection.disconnect();
} else {
  const moment = (job) => job.id.split(':').at(-1);
  new Worker(NAME, async (job) => record(`${job.repeatJobKey} ${moment(job)}`), { connection, concurrency: 100 });
}
